"""What is said of tables, sections, curves and verdicts."""

from implicit_bias.base.packaged import table_of

WORDS = table_of("report/page.toml")
