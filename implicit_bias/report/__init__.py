"""Reports: one self-contained HTML page of a comparison, its tables and figures.

page.py puts a page together from tables.py, figures.py and the verdicts of a comparison
(conclusion.py), and words.py says what models and data are called. The sentences stand in
`comparison/words.toml` and in the page's template. The looks of figures are those of `base.style`;
figures of trainings and diagnoses stand with what they draw.
"""
