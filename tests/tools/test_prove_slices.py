"""The proof that slices of the batch change no bit: which nets it has, and a quick one of them."""

from pathlib import Path

import pytest

from layermem import api
from layermem.errors import InputError
from tools.prove_slices import NETS, ROOT, cuts, prove

REFUSED = {
    "lstm_lm": ("layer 'lstm1/cont_slice' mixes the items of a batch", ()),  # time steps are on axis 0
    "ssd300": ("layer 'mbox_loss' mixes the items of a batch", ("dummy",)),  # hard negatives of all images
}


def test_every_net_without_batch_normalization_is_there():
    files = [
        path for path in Path(ROOT, "prototxt").glob("*/*train_val.prototxt") if "BatchNorm" not in path.read_text()
    ]
    proved = {str(Path(net.file).parent / Path(net.file).name.partition("solver")[0]) for net in NETS.values()}
    assert proved == {str(path.relative_to(ROOT)).removesuffix("train_val.prototxt").rstrip("/") for path in files}


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_slices_of_the_digits_change_no_bit(device):
    proofs = list(prove("digits", device))
    assert [proof.cut for proof in proofs] == ["none", *cuts(NETS["digits"])]
    assert all(proof.holds and not proof.refused and proof.results == 34 for proof in proofs)
    assert proofs[1].row().startswith(f"| digits x8 | {device} | whole/2 | all 34 | ")


@pytest.mark.parametrize("name", REFUSED)
def test_a_net_that_cannot_be_sliced_as_a_whole_is_refused_with_its_layer(name):
    message, stages = REFUSED[name]
    job = api.job_of(f"prototxt/{name}/train_val.prototxt", device="cpu", batch=2, stages=stages)
    with pytest.raises(InputError, match=message):
        job.with_slices("whole/2")
