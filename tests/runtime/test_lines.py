from olp_ray.runtime.lines import GRACE_S, Lines


def checked_every_second(lines, until_s, from_s=0):
    return [name for second in range(from_s, until_s + 1) for name in lines.left(float(second))]


def test_who_is_silent_for_longer_than_the_grace_has_left_and_is_named_once():
    lines = Lines()
    assert lines.reported("a", 1)
    lines.heard("b")
    assert checked_every_second(lines, int(GRACE_S)) == []
    lines.heard("b")
    assert lines.left(GRACE_S + 1) == ["a"]
    assert lines.left(GRACE_S + 2) == []
    assert lines.number("a") is None
    assert lines.reported("a", 1)


def test_while_this_process_stands_still_nobody_is_silent():
    lines = Lines()
    lines.heard("a")
    assert lines.left(0.0) == []
    assert lines.left(1000.0) == []


def test_a_report_that_a_newer_one_has_overtaken_is_not_the_newest():
    lines = Lines()
    assert lines.reported("a", 2)
    assert not lines.reported("a", 1)
    assert not lines.reported("a", 2)
    assert lines.reported("b", 1)
    assert lines.number("a") == 2
