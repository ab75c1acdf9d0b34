"""Reports: one self-contained HTML page, its tables and figures; figures of trainings.

page.py puts a page together from tables.py, figures/ and the verdicts of a comparison
(conclusion.py), style.py has the looks of figures, and words.py what models and data are called.
The sentences stand in `comparison/words.toml` and in the page's template; page.mplstyle has
matplotlib's settings.
"""
