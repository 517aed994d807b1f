"""Batches: shapes, targets that follow inputs, nothing of the held-out events in training, the same for every rank count."""

import numpy as np
import pytest

from meshrec.data.sequences.batches import EvaluationSequences, TrainingSequences, trainable_users

from .builds import build

RNG = np.random.default_rng(0)
LENGTHS = [3, 4, 5, 9, 30, 3, 7, 12, 4, 6, 8]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """11 users, u00 … u10, of so many events; two of them have a single training event."""
    text = "".join(
        f"u{user:02} {' '.join(f'i{item:02}' for item in RNG.integers(0, 40, length))}\n" for user, length in enumerate(LENGTHS)
    )
    return build(tmp_path_factory.mktemp("batches"), text, "user_lines")


def events(store, user):
    return store.items[store.starts[user] : store.starts[user + 1]].tolist()


def epoch(store, length, batch, ranks, seed=1, epoch=0, first=0):
    """Inputs and targets [steps · batch, length] of all ranks, step by step in the order of ranks."""
    parts = [
        list(TrainingSequences(store, length, batch, rank, ranks, seed, epoch).served_from(first)) for rank in range(ranks)
    ]
    together = [part for step in zip(*parts, strict=True) for part in step]
    return np.concatenate([part.inputs for part in together]), np.concatenate([part.targets for part in together])


def unpadded(row):
    row = row.tolist()
    real = [item for item in row if item]
    assert row == [0] * (len(row) - len(real)) + real, "padding is on the left"
    return real


@pytest.mark.parametrize("length", [1, 3, 10, 40])
def test_every_trainable_user_is_there_once_with_its_last_training_events(store, length):
    inputs, targets = epoch(store, length, 4, 1)
    assert (inputs.dtype, targets.dtype, inputs.shape) == (np.int32, np.int32, (12, length))
    wanted = {}
    for user, events_of_user in enumerate(LENGTHS):
        train = events(store, user)[:-2]
        if events_of_user > 3:
            wanted[tuple(train[-length - 1 :])] = wanted.get(tuple(train[-length - 1 :]), 0) + 1
    found = {}
    for row, target in zip(inputs, targets, strict=True):
        before, after = unpadded(row), unpadded(target)
        assert len(before) == len(after)
        if before:
            assert before[1:] == after[:-1], "each target is the next input"
            key = (*before, after[-1])
            found[key] = found.get(key, 0) + 1
    assert found == wanted
    assert (inputs.sum(axis=1) == 0).sum() == 12 - len(trainable_users(store)) == 3, "rows that only fill up"


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_the_ranks_together_have_the_same_batches_whatever_their_number(store, ranks):
    for one, many in zip(epoch(store, 5, 6, 1), epoch(store, 5, 6, ranks), strict=True):
        np.testing.assert_array_equal(one, many)


def test_the_order_depends_on_seed_and_epoch(store):
    orders = [epoch(store, 5, 3, 1, seed, number)[0].tobytes() for seed, number in ((1, 0), (1, 0), (2, 0), (1, 1))]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


def test_an_epoch_can_be_taken_up_in_the_middle(store):
    for whole, rest in zip(epoch(store, 5, 4, 2), epoch(store, 5, 4, 2, first=1), strict=True):
        np.testing.assert_array_equal(whole[4:], rest)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("part", "held_out"), [("validation", 2), ("test", 1)])
def test_evaluation_has_every_user_once_with_all_before_its_target(store, ranks, part, held_out):
    seen = []
    steps = set()
    for rank in range(ranks):
        batches = EvaluationSequences(store, part, 4, rank, ranks)
        assert batches.length == 30 - held_out
        steps.add(len(batches))
        for batch in batches:
            assert (batch.history.dtype, batch.target.dtype, batch.users.dtype) == (np.int32, np.int32, np.int64)
            assert batch.history.shape == (max(1, 4 // ranks), 30 - held_out)
            for user, history, target in zip(batch.users.tolist(), batch.history, batch.target.tolist(), strict=True):
                if user < 0:
                    assert (target, history.sum()) == (0, 0)
                    continue
                everything = events(store, user)
                assert unpadded(history) == everything[:-held_out]
                assert target == everything[-held_out]
                seen.append(user)
    assert sorted(seen) == list(range(len(LENGTHS)))
    assert len(steps) == 1


def test_a_given_length_cuts_the_oldest_events_off(store):
    for batch in EvaluationSequences(store, "test", 11, 0, 1, length=3):
        for user, history in zip(batch.users.tolist(), batch.history, strict=True):
            assert unpadded(history) == events(store, user)[:-1][-3:]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda store: TrainingSequences(store, 0, 4, 0, 1, 0, 0), "length 0"),
        (lambda store: TrainingSequences(store, 5, 4, 0, 3, 0, 0), "global batch 4: want a positive multiple of 3 ranks"),
        (lambda store: TrainingSequences(store, 5, 0, 0, 1, 0, 0), "global batch 0"),
        (lambda store: TrainingSequences(store, 5, 4, 2, 2, 0, 0), "rank 2 of 2"),
        (lambda store: EvaluationSequences(store, "train", 4, 0, 1), "part 'train'"),
        (lambda store: EvaluationSequences(store, "test", 0, 0, 1), "batches of 0"),
        (lambda store: EvaluationSequences(store, "test", 4, 0, 1, length=0), "length 0"),
    ],
)
def test_batches_that_can_not_be_are_refused(store, make, message):
    with pytest.raises(ValueError, match=message):
        make(store)


def test_users_with_one_training_event_alone_can_not_be_trained_on(tmp_path):
    store = build(tmp_path, "u1 a b c\nu2 a b c\n", "user_lines")
    with pytest.raises(ValueError, match="no user has two training events"):
        TrainingSequences(store, 5, 1, 0, 1, 0, 0)
    (batch,) = EvaluationSequences(store, "validation", 2, 0, 1)
    assert batch.history.tolist() == [[1], [1]]
