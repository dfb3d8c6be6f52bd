from olp_ray.core.types import Device, DeviceJoined, DeviceLost
from olp_ray.runtime.processes import Processes

OLD, NEW = (Device("d", slots=1, kv_tokens=10, step_s=1.0, incarnation=number) for number in (0, 4))


def test_a_newer_process_takes_the_place_of_an_older_one_and_is_told_once():
    processes = Processes([OLD])
    assert processes.up(OLD) == []
    assert processes.up(NEW) == [DeviceLost("d", 0), DeviceJoined(NEW)]
    assert processes.up(NEW) == []
    assert processes.up(OLD) == []
    assert processes.lost(DeviceLost("d", 0)) == []
    assert processes.is_there("d", 4)
    assert processes.is_gone("d", 0)
    assert not processes.is_gone("d", 4)


def test_a_loss_is_told_once_until_the_process_is_there_again():
    processes = Processes([OLD])
    loss = DeviceLost("d", 0)
    assert processes.lost(loss) == [loss]
    assert processes.lost(loss) == []
    assert processes.is_gone("d", 0)
    assert processes.up(OLD) == [DeviceJoined(OLD)]
    assert not processes.is_gone("d", 0)
    assert processes.lost(loss) == [loss]


def test_the_loss_of_what_was_never_there_is_the_routers_to_refuse():
    processes = Processes([OLD])
    for loss in (DeviceLost("nowhere", 0), DeviceLost("d", 3)):
        assert processes.lost(loss) == [loss]
        assert not processes.is_gone(loss.device_id, loss.incarnation)
