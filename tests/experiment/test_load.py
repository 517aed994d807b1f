"""Every error names file, line and key, what was found and what was wanted."""

from pathlib import Path

import pytest

from meshrec.experiment import ExperimentError, load_experiment

ROOT = Path(__file__).resolve().parents[2]
SMOKE = (ROOT / "experiments" / "smoke.yaml").read_text()
MESH = "layouts:\n  1d: {replicas: 1}\n  2d: {replicas: 2, ranks: [2, 4]}"
TWIN = "  scaled: {kind: moment_scaled_rowwise_adagrad, lr: 0.02, moment_scale: 2}"


def edited(tmp_path, old, new):
    """The smoke experiment with one change, under its own name."""
    assert SMOKE.count(old) == 1, f"{old!r} must occur once"
    path = tmp_path / "smoke.yaml"
    path.write_text(SMOKE.replace(old, new))
    return path


def line_of(path, fragment):
    return next(number for number, line in enumerate(path.read_text().splitlines(), start=1) if fragment in line)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_project_is_valid(path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem


@pytest.mark.parametrize(
    ("old", "new", "fragment", "key", "message"),
    [
        ("  click_rate: 0.25", "  clickrate: 0.25", "clickrate", "dataset.clickrate", "unknown key"),
        ("replicas: 2,", "replicas: 2, replica: 3,", "replica: 3", "layouts.2d.replica", "unknown key"),
        ("title: L", "color: red\ntitle: L", "color", "color", "unknown key"),
        ("strength: 1.5", "strength: strong", "strength:", "dataset.strength", "found 'strong'"),
        ("ranks: [1, 2, 4]\n", "ranks: [1, two, 4]\n", "two", "ranks.1", "found 'two'"),
        ("seeds: [0, 1, 2]", "seeds: [0, 1, 1]", "seeds", "seeds", "[1] given more than once"),
        ("moment_scale: 2}", "moment_scale: 0}", "moment_scale", "optimizers.scaled.moment_scale", "found 0"),
        (
            "plain: {kind: rowwise_adagrad, lr: 0.02}",
            "plain: {kind: rowwise_adagrad, lr: -0.02}",
            "plain:",
            "optimizers.plain.lr",
            "found -0.02",
        ),
        (
            "plain: {kind: rowwise_adagrad, lr: 0.02}",
            "plain: {kind: rowwise_adagrad, lr: 0.02, weight_decay: 0}",
            "plain:",
            "optimizers.plain",
            "weight_decay is not supported",
        ),
        (
            "1d: {replicas: 1}",
            "1d: {replicas: 1, sync: gradients, sync_every: 3}",
            "1d:",
            "layouts.1d",
            "sync_every is 3, want 1: twins that exchange gradients",
        ),
        ("1d: {replicas: 1}", "1d: {tables: {0: planned}}", "1d:", "layouts.1d.tables.0", "found 'planned'"),
        ("  dense_optimizer", "  execution: virtuel\n  dense_optimizer", "virtuel", "training.execution", "found 'virtuel'"),
        ("  dense_optimizer", "  checkpoint_every: 0\n  dense_optimizer", "every", "training.checkpoint_every", "found 0"),
        (
            "embedding_dim: 16",
            "embedding_dim: 16\n  hots: [1, 2]",
            "hots",
            "model.hots",
            "found 2 numbers, want one number or 26",
        ),
        ("kind: rowwise_adagrad", "kind: adamw", "adamw", "optimizers.plain", "'rowwise_adagrad'"),
        ("kind: rowwise_adagrad, lr: 0.02", "kind: rowwise_adagrad", "plain:", "optimizers.plain.lr", "Field required"),
        ("  train_samples: 102400\n", "", "dataset:", "dataset.train_samples", "Field required"),
        ("train_samples: 102400", "train_samples: 2047", "train_samples", "dataset.train_samples", "fewer than 2048"),
        ("embedding_dim: 16", "embedding_dim: 18", "embedding_dim", "model.embedding_dim", "multiple of 4"),
        ("embedding_dim: 16", "embedding_dim: 32", "bottom_mlp", "model.bottom_mlp", "ends in 16, want embedding_dim = 32"),
        (
            "table_rows: 20000",
            "table_rows: [9, 9]",
            "table_rows",
            "dataset.table_rows",
            "found 2 numbers, want one number or 26",
        ),
        ("{global_batch: 2048}", "{global_batch: 2048, rank_batch: 9}", "strong", "scaling.strong", "exactly one of"),
        ("{global_batch: 2048}", "{global_batch: 2050}", "strong", "scaling.strong.global_batch", "over 4 ranks"),
        ("replicas: 2,", "replicas: 3,", "2d:", "layouts.2d.replicas", "3 replicas don't divide 2 ranks"),
        ("1d: {replicas: 1}", "1d: {replicas: 4}", "1d:", "layouts.1d.replicas", "4 replicas don't divide 1 ranks"),
        ("ranks: [2, 4]}", "ranks: [2, 8]}", "2d:", "layouts.2d.ranks.1", "found 8, want one of the experiment's ranks"),
        ("ranks: [1, 2, 4]\n", "ranks: [1, 2, 4, 32]\n", "1d:", "layouts.1d.sharding", "26 tables can't be split over the 32"),
        ("name: smoke", "name: smoker", "name", "name", "found 'smoker', want 'smoke'"),
        ("layouts: [1d, 2d]", "layouts: [1d, 3d]", "factorial", "analysis.factorial.layouts.1", "found '3d', want one of"),
        ("[1d.plain, 2d.scaled]", "[1d.plain, 2d.x]", "published:", "analysis.pairs.published.1", "found '2d.x'"),
        ("comparison: published", "comparison: publish", "publish,", "analysis.confirmatory.2.comparison", "want one of"),
    ],
)
def test_an_error_names_file_line_key_and_what_is_wrong(tmp_path, old, new, fragment, key, message):
    path = edited(tmp_path, old, new)
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path)
    line = line_of(path, fragment)
    assert f"{path}:{line}: {key}: " in str(caught.value)
    assert message in str(caught.value)


def test_all_problems_are_reported_at_once(tmp_path):
    path = edited(tmp_path, "  zipf_exponent: 1.05\n  click_rate: 0.25", "  zipf: 1.05\n  click_rate: 25")
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path)
    assert len(str(caught.value).splitlines()) == 2


def test_a_repeated_key_is_an_error_and_not_the_last_one_wins(tmp_path):
    path = edited(tmp_path, "  strength: 1.5", "  strength: 1.5\n  strength: 0.1")
    first = line_of(path, "strength")
    with pytest.raises(
        ExperimentError, match=rf"smoke\.yaml:{first + 1}: dataset\.strength: given twice, first in line {first}"
    ):
        load_experiment(path)


@pytest.mark.parametrize(
    ("old", "new", "twins"),
    [
        (TWIN, TWIN + "\n" + TWIN.replace("scaled:", "other:", 1), "1d.scaled.strong and 1d.other.strong"),
        # with one replica, order and sync have no effect: still the same run
        ("  1d: {replicas: 1}", "  1d: {replicas: 1}\n  one: {sync_every: 7}", "1d.plain.strong and one.plain.strong"),
        ("{global_batch: 2048}", "{global_batch: 2048}\n  weak: {rank_batch: 2048}", "1d.plain.strong and 1d.plain.weak"),
    ],
)
def test_two_labels_for_the_same_run_are_an_error(tmp_path, old, new, twins):
    path = edited(tmp_path, old, new)
    with pytest.raises(ExperimentError, match=f"at 1 ranks cells {twins} are duplicates"):
        load_experiment(path)


def test_a_rank_count_without_any_cell_is_an_error(tmp_path):
    path = edited(tmp_path, MESH, MESH.replace("{replicas: 1}", "{replicas: 1, ranks: [2, 4]}"))
    line = line_of(path, "ranks: [1, 2, 4]")
    with pytest.raises(ExperimentError, match=rf"smoke\.yaml:{line}: ranks\.0: no layout is run at 1 rank"):
        load_experiment(path)


def test_broken_yaml_names_the_line(tmp_path):
    path = edited(tmp_path, "ranks: [1, 2, 4]\n", "ranks: [1, 2, 4\n")
    with pytest.raises(ExperimentError, match=r"smoke\.yaml: is no valid YAML: [\s\S]*line \d+"):
        load_experiment(path)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_an_error(tmp_path, text):
    path = tmp_path / "smoke.yaml"
    path.write_text(text)
    with pytest.raises(ExperimentError, match=r"smoke\.yaml:1: file: "):
        load_experiment(path)


def test_a_missing_file_and_undecodable_bytes_are_errors(tmp_path):
    with pytest.raises(ExperimentError, match=r"absent\.yaml: can't be read: No such file"):
        load_experiment(tmp_path / "absent.yaml")
    path = tmp_path / "smoke.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ExperimentError, match=r"smoke\.yaml: can't be read: .*UTF-8"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("? [a, b]\n: 1\n", ":1: a list or mapping as a key, want a name"),
        ("name: !!python/object:os.system {}\n", "is no plain YAML"),
        ("name: &a [*a]\n", "contains itself through a YAML anchor"),
    ],
)
def test_exotic_yaml_is_refused_in_a_sentence(tmp_path, text, message):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(ExperimentError, match=r"odd\.yaml") as caught:
        load_experiment(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("lr", [".inf", ".nan"])
def test_a_learning_rate_is_a_number(tmp_path, lr):
    old = "plain: {kind: rowwise_adagrad, lr: 0.02}"
    with pytest.raises(ExperimentError, match=r"optimizers\.plain\.lr: found (inf|nan): Input should be a finite number"):
        load_experiment(edited(tmp_path, old, old.replace("0.02", lr)))


def test_a_seed_fits_into_the_tables(tmp_path):
    with pytest.raises(ExperimentError, match=r"seeds\.2: found 9223372036854775808"):
        load_experiment(edited(tmp_path, "seeds: [0, 1, 2]", f"seeds: [0, 1, {2**63}]"))


@pytest.mark.parametrize(
    ("layout", "key", "message"),
    [
        ("{sharding: column-wise, ranks: [8]}", "sharding", "a table's 16 columns can't be split over the 8 ranks"),
        ("{sharding: row-wise, ranks: [8]}", "sharding", "a table's 5 rows can't be split over the 8 ranks"),
        ("{tables: {1: row-wise, 0: row-wise}, ranks: [8]}", "tables.0", "a table's 5 rows can't be split over the 8 ranks"),
        ("{tables: {3: column-wise}, ranks: [8]}", "tables.3", "a table's 16 columns can't be split over the 8 ranks"),
        ("{tables: {30: row-wise}, ranks: [8]}", "tables.30", "Input should be less than 26"),
        ("{ranks: [32]}", "sharding", "26 tables can't be split over the 32 ranks"),
        ("{tables: {1: replicated}, ranks: [26]}", "sharding", "25 tables can't be split over the 26 ranks"),
        ("{sharding: planned, ranks: [5000]}", "sharding", "4855 rows of planned tables can't be split over the 5000 ranks"),
        ("{memory_limit: 100000, ranks: [2]}", "memory_limit", "found 100000 bytes, want at least 155360"),
        ("{memory_limit: 12000, ranks: [26]}", "memory_limit", "found 12000 bytes, want at least 12416"),
        ("{memory_limit: 24847, ranks: [8]}", "memory_limit", "found 24847 bytes, want at least 38840"),
    ],
)
def test_shardings_that_can_not_be_are_refused_before_any_rank_is_there(tmp_path, layout, key, message):
    """Of 26 tables of 16 columns: one with 5 rows, 25 with 194; the same at every rank count that can be."""
    rows = f"table_rows: {[5, *[194] * 25]}"
    path = edited(tmp_path, "table_rows: 20000", rows)
    ranks = layout.split("ranks: ")[1].rstrip("}")
    text = path.read_text().replace("ranks: [1, 2, 4]\n", f"ranks: [1, 2, 4, {ranks[1:-1]}]\n").replace("4, 2]", "4]")
    text = text.replace("  1d: {replicas: 1}", f"  odd: {layout}\n  1d: {{replicas: 1, ranks: [1, 2, 4]}}")
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path)
    assert f"{path}:{line_of(path, '  odd:')}: layouts.odd.{key}: " in str(caught.value)
    assert str(caught.value).count("can't be split over") == message.count("can't be split over")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "layout",
    [
        "{tables: {1: row-wise}, ranks: [4]}",
        "{tables: {1: row-wise, 0: row-wise}, ranks: [4]}",
        "{sharding: planned, tables: {0: replicated}, memory_limit: 90000, ranks: [4]}",
        "{memory_limit: 90000, ranks: [4]}",
    ],
)
def test_shardings_that_can_be_are_not(tmp_path, layout):
    path = edited(tmp_path, "  1d: {replicas: 1}", f"  odd: {layout}\n  1d: {{replicas: 1}}")
    path.write_text(path.read_text().replace("table_rows: 20000", f"table_rows: {[5, *[194] * 25]}"))
    assert "odd" in load_experiment(path).layouts


def test_columns_may_be_split_into_quadruples(tmp_path):
    path = edited(tmp_path, "  1d: {replicas: 1}", "  odd: {sharding: column-wise, ranks: [4]}\n  1d: {replicas: 1}")
    with pytest.raises(ExperimentError) as caught:  # fbgemm's row-wise moments over split columns are another matter
        load_experiment(path)
    assert "can't be split" not in str(caught.value)
