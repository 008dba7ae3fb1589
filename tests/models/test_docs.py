"""What docs/models.md says of the networks is what they are."""

import pytest

from tests import PROJECT_ROOT
from unstall.models import MODELS
from unstall.pipeline.sources.published import FORMS

TEXT = (PROJECT_ROOT / "docs" / "models.md").read_text()
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for cells in (line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| `"))
}


@pytest.mark.parametrize("name", MODELS)
def test_a_networks_row_says_what_it_is(name):
    network, (shape, parameters, data, training, figures) = MODELS[name], ROWS[name]
    assert shape == "x".join(map(str, network.input_shape))
    assert parameters == f"{network.build(network.classes or 2).count_params():,}"
    assert data == network.data
    assert training == f"{network.training.optimizer}, {network.training.batch_size or 'all'}"
    assert figures == ("; ".join(f"{figure.text} ({figure.on})" for figure in network.published) or "none")


@pytest.mark.parametrize("name", FORMS)
def test_a_data_sets_row_says_how_large_it_is(name):
    assert ROWS[name][0] == f"{FORMS[name].train:,}, {FORMS[name].test:,}"


def test_every_network_and_data_set_has_a_row():
    assert set(ROWS) == {*MODELS, *FORMS}
