"""`implicit-bias predict`: a saved model on further rows of the user's own."""

from pathlib import Path

from implicit_bias.cli.options import JsonOption
from implicit_bias.cli.output import new_file, percent, print_json, show, usage_errors


def predict(
    model: Path,
    file: Path,
    id: str | None = None,
    out: Path = Path("predictions.csv"),
    as_json: JsonOption = False,
) -> None:
    """Predict the class of each row of a file, prepared as the model's own file was.

    Parameters
    ----------
    model
        A model that fit, train or compare saved, of --data FILE.
    file
        A table with the same columns; that of the labels may be missing.
    id
        Columns that are carried along (default: those of the model's file).
    out
        CSV file; if it is there, the next number is added.
    """
    from implicit_bias.base.atomic import write_csv
    from implicit_bias.estimators.saved_models import load_model
    from implicit_bias.runs.prediction import predict_file

    carried = None if id is None else [name.strip() for name in id.split(",") if name]
    saved = load_model(model)
    with usage_errors():
        table, wrong = predict_file(saved, file, model.stem, carried)
    out = new_file(out)
    write_csv(out, table)
    if as_json:
        count = None if wrong is None else wrong.count
        print_json({"file": str(out), "rows": len(table), "wrong": count})
        return
    if wrong is not None:
        own = saved.facts.get("data") == str(file.absolute())
        seen = "; most of them it was fitted to, so on others expect more" if own else ""
        show(f"{model.stem} is wrong on {percent(wrong.share)} ({wrong} rows{seen})")
    show(f"Predictions: {out}")
