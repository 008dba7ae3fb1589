"""How many workers a training on several hosts needs, what it takes, and what is said of it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import CUTS, a_costs, a_service_plan_document
from tests.checks import Page, printed, said_of
from unstall.benchmarks.service.planning.model import MOST_WORKERS, PAYLOAD_RATIO, Hosts
from unstall.benchmarks.service.planning.report import KIND
from unstall.benchmarks.service.planning.results import PlanDocument, Results, derive
from unstall.profiles.devices import Device

# Two trainers' hosts of two devices, each of 1,000 images/sec; a worker makes 1,000.
HOSTS = Hosts(worker_cores=4.0, trainer_cores=4.0, worker_price=0.25, trainer_price=1.0, accelerators=4, per_host=2)
# Of the rate of each device: ten images take 10 ms, and the next batch comes 0.5 ms later.
FED = 10 / 10.5
NEAR = 0.02


def a_document(costs=None, **changes) -> PlanDocument:
    """Returns the document of ten epochs of a million images, for which workers send whole batches."""
    hosts = dataclasses.replace(HOSTS, **{name: changes.pop(name) for name in list(changes) if hasattr(HOSTS, name)})
    return a_service_plan_document(costs or a_costs(cuts=CUTS[2:]), **({"hosts": hosts, "images": 1_000_000} | changes))


def derived(**changes) -> Results:
    return derive(a_document(**changes))


def said(**changes) -> str:
    return said_of(KIND, a_document(**changes))


def test_the_smallest_pool_that_reaches_the_goal_is_chosen():
    """Two devices a host take 2,000 images/sec, and a worker with four cores makes 1,000."""
    results = derived()
    assert results.alone is not None and results.alone.device_ratio == pytest.approx(0.5, rel=NEAR)
    assert results.chosen is not None and results.chosen.workers == 2
    [cut] = results.cuts
    assert [pool.workers for pool in cut.pools] == [1, 2] and cut.pools[1] == results.chosen
    assert cut.pools[0].device_ratio < 0.9 <= results.chosen.device_ratio == pytest.approx(FED)
    assert results.chosen.images_per_sec == pytest.approx(4000 * FED)
    assert cut.by_tensorflow == 2


def test_no_workers_are_needed_where_the_trainers_cores_are_enough():
    results = derived(trainer_cores=9.0)
    assert results.alone is not None and results.alone.device_ratio > 0.9
    assert results.chosen is None


def test_where_no_pool_reaches_the_goal_the_fastest_is_chosen():
    results = derived(goal_ratio=0.96)  # above what the hand-over leaves
    assert results.chosen is not None and results.chosen.workers == 2
    assert [cut.smallest for cut in results.cuts] == [None]


def test_far_workers_are_as_many_as_the_way_takes():
    """10 ms there, 10 ms back, 2 ms to receive: ten images each 22 ms of each worker; a host takes 2,000 a second."""
    results = derived(delay_s=0.01, goal_ratio=0.88)
    assert results.chosen is not None and results.chosen.workers == 4
    assert results.cuts[0].pools[2].device_ratio == pytest.approx(3 * 10 / 0.022 / 2000, rel=NEAR)


def test_more_workers_are_asked_for_where_their_memory_then_holds_the_files():
    """Two workers a host make enough, but only three hold the 100 GB that the storage gives too slowly."""
    chosen = derived(storage_bytes_per_sec=200e6, memory_bytes=20e9).chosen
    assert chosen is not None and (chosen.workers, chosen.cached) == (3, True)


def test_no_more_workers_are_asked_for_where_no_number_of_them_holds_the_files():
    [cut] = derived(storage_bytes_per_sec=200e6, memory_bytes=1e6).cuts
    assert [(pool.limit, pool.cached) for pool in cut.pools] == [("workers", False), ("storage", False)]


def test_the_time_and_the_price_are_those_of_all_epochs_and_hosts():
    """A million images an epoch, ten epochs; two trainers' hosts for 1.00 each, and two workers each for 0.25."""
    results = derived()
    assert results.training is not None and results.chosen is not None
    assert results.training.hours == pytest.approx(10 * 1e6 / (4000 * FED) / 3600)
    assert results.training.price == pytest.approx(results.training.hours * 2 * (1.0 + 2 * 0.25))
    assert results.chosen.price == pytest.approx(results.training.price / 10)  # of a million images
    unpriced = derived(worker_price=None, trainer_price=None)
    assert unpriced.training is not None and unpriced.training.price is None
    assert derived(images=None).training is None


def test_only_the_first_epoch_is_slow_where_memory_holds_the_files():
    results = derived(storage_bytes_per_sec=200e6, memory_bytes=100e9)
    pool, training = results.chosen, results.training
    assert pool is not None and training is not None and (pool.workers, pool.cached) == (2, True)
    assert training.first_epoch_s == pytest.approx(1e6 / 2000)
    assert training.hours == pytest.approx((training.first_epoch_s + 9e6 / pool.images_per_sec) / 3600)
    assert pool.first_images_per_sec < 0.6 * pool.images_per_sec


@pytest.mark.parametrize("changes", [{"accelerators": 10**9}, {"per_host": 0}, {"per_host": 8}], ids=str)
def test_an_edited_document_is_refused_before_anything_is_predicted(changes):
    with pytest.raises(ValueError, match=r"accelerators, .* a host"):
        derived(**changes)


def test_accelerators_of_a_fleet_have_the_rate_that_is_stated_and_one_alone_that_which_was_measured():
    slower = a_costs(cuts=CUTS[2:], device_images_per_sec=800.0)
    alone = derive(a_document(slower, trainer_cores=99.0)).alone
    assert alone is not None and alone.images_per_sec == 4000.0
    alone = derive(a_document(slower, trainer_cores=99.0, accelerators=1, per_host=1)).alone
    assert alone is not None and alone.images_per_sec == 800.0
    with pytest.raises(ValueError, match=r"^the device has no rate$"):
        derived(device=Device(kind="emulated", name="emulated:1000"))


PRINTED = """
cats-dogs-64 on 4 x emulated:1000, batches of 10; 2 trainers with 4 cores,
workers with 4
workers send  worker us trainer us   KB img/s a worker needed by TensorFlow
whole batches     3,800        100 20.0          1,000      2             2
Sending costs a worker 5.00 ms of a core a megabyte and 1.00 ms a batch;
receiving costs the trainer 5.00 and 1.00 ms.

workers send                   workers img/s device    network a million limit
no workers                           0 1,992    50%          -     0.279 loader
whole batches                        1 1,992    50% 159 Mbit/s     0.349 workers
whole batches (chosen,               2 3,810    95% 305 Mbit/s     0.219 device
cheapest)

4 accelerators on 2 hosts consume 4,000 images/sec, 2,000 a host; an epoch of
1,000,000 images takes 4.2 minutes at best, and reads 100 GB of files, at 3.2
Gbit/s.
Pays: 2 workers for each trainer's host, 4 in all, that send whole batches make
1.91 times the images/sec, at 0.78 times the price of an image; the accelerators
are used 95%, alone 50%.
With workers the training takes 0.7 hours for 10 epochs, and costs 2.
Assumed: cores like those here,"""


def test_what_is_printed():
    assert printed(KIND, a_document()).startswith(PRINTED.strip())


def test_what_is_assumed_of_a_fleet_is_said():
    text = said()
    assert "each trainer's host with workers of its own, steps of the stated rate that all accelerators begin" in text
    assert "workers, needed, network: of each trainer's host; img/s: of all together." in text
    alone = said(accelerators=1, per_host=1)
    assert "accelerators" not in alone.partition("Assumed")[2]


def test_one_of_a_thing_is_no_more_than_one():
    text = said(accelerators=1, per_host=1, trainer_cores=2.0, worker_cores=5.0)
    assert "1 accelerator on 1 host consumes 1,000 images/sec, 1,000 a host;" in text
    assert "Pays: 1 worker that sends whole batches makes 1.90 times" in text
    assert "the device is used 95%" in text
    text = said(accelerators=2, per_host=1, trainer_cores=2.0, worker_cores=5.0)
    assert "2 accelerators on 2 hosts consume 2,000 images/sec, 1,000 a host;" in text
    assert "Pays: 1 worker for each trainer's host, 2 in all, that send whole batches make 1.91 times" in text


def test_no_workers_are_asked_for_where_none_are_needed():
    text = said(trainer_cores=9.0, memory_bytes=1e9)
    assert "The memory of" not in text and "(chosen" not in text
    assert "Does not pay: the trainers alone use their accelerators 100%, and more than 90% is not asked for." in text
    assert "Without workers the training takes 0.7 hours for 10 epochs, and costs 1." in text


def test_why_no_number_of_workers_is_enough_is_said():
    text = said(link_bytes_per_sec=20e6 / PAYLOAD_RATIO)  # as much as the trainers' own cores
    assert "Does not pay: no pool raises the rate by 5 % or more. With workers, the trainer's link is full." in text
    text = said(link_bytes_per_sec=30e6 / PAYLOAD_RATIO)
    assert "No pool uses the accelerators 90%: the trainer's link is full." in text
    text = said(worker_cores=0.01)
    assert f"With workers, more than {MOST_WORKERS} workers for a trainer are not looked at." in text
    text = said(worker_cores=0.02, trainer_cores=2.0)
    assert f"90%: more than {MOST_WORKERS} workers for a trainer are not looked at." in text
    text = said(storage_bytes_per_sec=300e6)
    assert "No pool uses the accelerators 90%: the storage gives the files no faster." in text
    text = said(goal_ratio=0.96)
    assert "No pool uses the accelerators 96%: the hand-over of batches takes the rest." in text


@pytest.mark.parametrize(
    ("memory_bytes", "sentence"),
    [
        (25e9, "The memory of the workers' hosts holds all files."),
        (1e8, "The memory of the workers' hosts does not hold all files, so that every epoch reads the storage."),
    ],
)
def test_whether_memory_holds_the_files_is_said(memory_bytes, sentence):
    assert sentence in said(memory_bytes=memory_bytes)
    assert "The memory of" not in said()


def test_the_first_epoch_is_said_where_the_storage_may_limit_it():
    text = said(storage_bytes_per_sec=200e6, memory_bytes=100e9)
    assert "and costs 2; the first epoch, which reads all files from the storage, 8.3 minutes." in text
    assert "for 1 epoch," in said(epochs=1) and "first epoch" not in said()


def test_the_use_of_a_link_is_said():
    """Twice what 3,810 images/sec of 20 KB on two hosts take."""
    assert "The link of each trainer is used 50%." in said(link_bytes_per_sec=2 * 20_000 * 1905 / PAYLOAD_RATIO)
    assert "The link of the trainer is used" in said(
        accelerators=1, per_host=1, trainer_cores=2.0, link_bytes_per_sec=1e9
    )
    assert "The link of" not in said()


def test_the_size_of_images_is_said_where_it_is_not_the_models():
    device = Device(kind="emulated", name="emulated:1000", images_per_sec=1000.0)
    assert said(image_size=(224, 224), device=device).startswith("224x224 px on 4 x emulated:1000, batches of 10;")


def test_the_page_says_what_the_terminal_says():
    document = a_document()
    text = " ".join(Page(KIND.page(document, KIND.derive(document))).text.split())
    assert "Pays: 2 workers for each trainer's host, 4 in all, that send whole batches make 1.91 times" in text
    assert "whole batches (chosen, cheapest)" in text and "305 Mbit/s" in text
    assert "With workers the training takes 0.7 hours" in text
