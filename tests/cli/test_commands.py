"""Every command through its flags: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import dataclasses
import http.server
import json
import re
import threading
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from olp_ray.cli import main
from olp_ray.cli.explain import LEGEND, START_LEGEND
from olp_ray.cli.group import COMMANDS
from olp_ray.cli.serve import build_serve_config
from olp_ray.config.router import PRESETS
from olp_ray.config.sweep import load_sweep
from olp_ray.core.explanation import DeviceAnswer, Explanation
from olp_ray.core.policies import POLICIES
from olp_ray.errors import ConfigError
from olp_ray.sweep.results import write_results

ROOT = Path(__file__).parents[2]
SMALL = ("--requests", "40", "--rate", "30", "--fleet", "2xa100-8b")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ok(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = [f"{i * 0.1},{100 + i},{20 + i}" for i in range(50)]
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(rows))
    return path


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("workload", "describe")])
def test_help_is_there(command: tuple[str, ...]) -> None:
    text = ok(*command, "--help")
    assert text.startswith("Usage: ")
    if command not in ((), ("workload",), ("policies",)):
        assert "olp-ray " + command[0] in text  # an example


def test_simulate_explains_what_it_is_asked(tmp_path: Path) -> None:
    asked = [flag for question in ("r05@0.5", "r39@0.0", "r00@900", "x@1") for flag in ("--explain", question)]
    text = ok("simulate", *SMALL, *asked, "--out", tmp_path / "o")
    assert "r05 at 0.5 s: running on d" in text
    assert "slot_price" in text
    assert "r39 has not arrived at 0 s: it does at " in text
    assert "r00 is no longer there at 900 s: finished" in text
    assert "x is no request of this run: ids are r00 to r39" in text
    assert text.count(LEGEND) == 1
    assert LEGEND not in ok("simulate", *SMALL, *asked, "--policy", "central_fifo", "--out", tmp_path / "o")


def test_a_question_about_a_rejected_request_is_told_why(tmp_path: Path) -> None:
    scenario = ("--requests", "300", "--rate", "150", "--fleet", "1xa100-8b", "--policy", "online_lp:attainment")
    text = ok("simulate", *scenario, "--explain", "r203@900", "--out", tmp_path / "o")
    table = pd.read_parquet(tmp_path / "o" / "decisions.parquet").set_index("request_id")
    rejected = table.loc["r203"]
    assert rejected["decision"] == "reject"
    assert (
        f"r203 is no longer there at 900 s: rejected at {rejected['time_s']:.3f} s: {rejected['reject_reason']} "
        f"(limit {rejected['limit']}; knob {rejected['knob']})" in text
    )


def test_the_legend_names_what_answers_have() -> None:
    named = set(re.findall(r"(\w+): ", LEGEND + START_LEGEND))
    of_a_request = {"reward", "option_value", "not_waiting", "key", "level", "start_rule"}
    assert named == of_a_request | {"earliest_start_s"}
    assert of_a_request < {field.name for field in dataclasses.fields(Explanation)}
    assert "earliest_start_s" in {field.name for field in dataclasses.fields(DeviceAnswer)}


@pytest.mark.parametrize("question", ["r05", "r05@soon", "@3", "r05@-1", "r05@inf"])
def test_a_question_that_is_none_is_refused(question: str) -> None:
    result = run("simulate", *SMALL, "--explain", question)
    assert (result.exit_code, "expected ID@TIME" in result.output) == (2, True)


@pytest.mark.parametrize("url", ["nope", "http://nowhere:port"])
def test_explain_at_no_url_says_what_one_looks_like(url: str) -> None:
    result = run("explain", "--url", url)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: no endpoint answers at '{url}'")
    assert "http://10.0.0.1:8000" in result.output


def test_explain_at_another_server_says_what_it_answered() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501, in HTML
    threading.Thread(target=server.handle_request, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    result = run("explain", "--url", url)
    server.server_close()
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: '{url}' answers with status 501, not as `olp-ray serve` does\n")


def test_explain_without_an_endpoint_says_so() -> None:
    result = run("explain", "--url", "http://127.0.0.1:9")
    assert (result.exit_code, "start `olp-ray serve` first" in result.output) == (2, True)


def test_simulate_writes_tables_and_figures(tmp_path: Path) -> None:
    out = tmp_path / "o"
    text = ok("simulate", *SMALL, "--seed", "3", "--policy", "online_lp:e2e", "--out", out)
    assert "online_lp:e2e, seed 3" in text
    assert f"Open {out / 'timeline.png'}" in text
    assert len(pd.read_parquet(out / "requests.parquet")) == 40
    assert len(pd.read_parquet(out / "decisions.parquet")) == 40
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["seed"], summary["metrics"]["finished"], summary["rate_per_s"]) == (3, 40, 30.0)
    assert (out / "latency.png").exists()


def test_simulate_in_period_mode() -> None:
    text = ok("simulate", "--mode", "period", "--fleet", "2xB4M4000", "--rate", "0.02", "--requests", "20")
    rows = {cells[1].strip(): cells[3].strip() for line in text.splitlines() if len(cells := line.split("│")) > 4}
    assert (rows["e2e_mean_s"], rows["goodput_per_s"], rows["attainment"]) == ("periods", "1/period", "")


def test_load_prints_saturation(trace: Path, tmp_path: Path) -> None:
    text = ok("simulate", "--trace", trace, "--load", "0.5", "--fleet", "1xa100-8b", "--out", tmp_path / "o")
    assert "load 0.5 of the " in text


def test_compare_prints_one_row_per_policy(trace: Path, tmp_path: Path) -> None:
    policies = ("round_robin", "least_outstanding", "central_fifo", "online_lp")
    flags = [part for name in policies for part in ("--policy", name)]
    text = ok("compare", "--trace", trace, *flags, "--seeds", "2", "--workers", "1", "--out", tmp_path / "o")
    rows = [line.split()[0] for line in text.splitlines() if line.split() and line.split()[0] in policies]
    assert sorted(rows) == sorted(policies)
    for column in ("TTFT", "E2E", "p50/p95/p99", "SLO met", "good", "max wait", "never started", "rejected"):
        assert column in text
    assert f"Open {tmp_path / 'o' / 'comparison.png'}" in text


def test_compare_says_what_names_and_differences_stand_for(tmp_path: Path) -> None:
    flags = (*SMALL, "--seeds", "1", "--workers", "1", "--policy", "round_robin", "--policy", "central_fifo:e2e")
    text = ok("compare", *flags, "--reference", "central_fifo:e2e")
    assert "the difference to central_fifo:e2e in % of its mean" in text
    assert "no preset is named it is `balanced`: round_robin is round_robin:balanced." in text
    file = tmp_path / "s.yaml"
    file.write_text("router: {preset: ttft}\n")
    assert "no preset is named it is `ttft`" in ok("compare", "--scenario", file, *flags)


def test_saturation_is_that_of_the_requests_whatever_the_command(trace: Path) -> None:
    def line(*arguments: str) -> str:
        found = ok(*arguments, "--trace", str(trace), "--fleet", "1xa100-8b", "--load", "0.5", "--policy", "edf")
        return next(line for line in found.splitlines() if line.startswith("Arrivals: "))

    one = line("simulate", "--requests", "20", "--seed", "3")
    assert "that the fleet serves of the first 20 requests" in one
    assert one == line("compare", "--requests", "20", "--seeds", "1", "--workers", "1")
    whole = line("simulate")
    assert "of the first 50 requests" in whole
    assert whole.split(",")[0] != one.split(",")[0]


def test_scenario_file_and_flags(tmp_path: Path, trace: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("trace: t.csv\nfleet: 1xa100-8b\nseeds: [4]\nrate: 9\nrouter: {policy: central_fifo}\n")
    ok("simulate", "--scenario", file, "--rate", "7", "--out", tmp_path / "o")
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert (summary["seed"], summary["rate_per_s"]) == (4, 7.0)
    assert summary["scenario"]["router"]["policy"] == "central_fifo"


def test_policies_lists_all() -> None:
    text = ok("policies")
    assert all(name in text for name in POLICIES)


def test_workload_describe_convert_list(trace: Path, tmp_path: Path) -> None:
    assert "50" in ok("workload", "describe", trace, "--out", tmp_path / "w.png")
    assert (tmp_path / "w.png").exists()
    ok("workload", "convert", trace, tmp_path / "u.csv")
    assert len(pd.read_csv(tmp_path / "u.csv")) == 50
    assert "lmsys" in ok("workload", "list")


def test_describe_draws_into_the_output_folder_unless_told(trace: Path, tmp_path: Path) -> None:
    text = ok("workload", "describe", trace)
    assert "Open olp-ray-out/workload/t.png" in text
    assert [path.name for path in (tmp_path / "olp-ray-out").rglob("*.png")] == ["t.png"]
    assert [path.name for path in (tmp_path / "olp-ray-out").iterdir()] == ["workload"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv", "olp-ray-out"]


def test_workload_makes_the_folder_that_it_writes_into(trace: Path) -> None:
    ok("workload", "generate", "a/b/g.csv", "--requests", "5")
    ok("workload", "convert", trace, "c/d/u.csv")
    ok("workload", "describe", trace, "--out", "e/f/w.png")
    assert all(Path(name).is_file() for name in ("a/b/g.csv", "c/d/u.csv", "e/f/w.png"))


@pytest.mark.parametrize("command", [("generate",), ("convert", "t.csv"), ("describe", "t.csv", "--out")])
def test_workload_says_where_it_can_not_write(trace: Path, command: tuple[str, ...]) -> None:
    Path("file").touch()
    Path("folder.png").mkdir()
    for path, said in (("file/x/w.png", "Not a directory"), ("folder.png", "Is a directory")):
        result = run("workload", *command, path)
        assert result.exit_code == 2
        last = result.output.splitlines()[-1]
        assert last.startswith("Error: ")
        assert path.removesuffix("/w.png") in last
        assert said in last


def test_workload_describe_says_what_the_file_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n10,5\n20,6\n")
    text = ok("workload", "describe", "lengths.csv")
    assert "no arrival times in the file" in text
    assert "mean rate" not in text
    (tmp_path / "mixed.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n3,10,5\n1,20,6\n")
    assert "sorted by arrival on reading" in ok("workload", "describe", "mixed.csv")


def test_a_generated_trace_is_described_and_simulated(tmp_path: Path) -> None:
    flags = ("--requests", "80", "--rate", "20", "--sessions", "3:5", "--arrivals", "gamma:2", "--seed", "1")
    ok("workload", "generate", "g.csv", "--workload", "arena", *flags)
    assert "session" in ok("workload", "describe", "g.csv")
    ok("simulate", "--trace", "g.csv", "--fleet", "1xa100-8b", "--out", "o")
    assert len(pd.read_parquet("o/requests.parquet")) == 80


def test_generated_workloads_from_flags(tmp_path: Path) -> None:
    ok("simulate", *SMALL, "--arrivals", "gamma:3", "--sessions", "2:1", "--out", "o")
    summary = json.loads(Path("o/summary.json").read_text())
    assert summary["scenario"]["arrivals"]["variation"] == 3
    assert pd.read_parquet("o/requests.parquet")["session"].str.startswith("s").all()


def test_simulate_says_how_long_decisions_took_and_logs_prices() -> None:
    text = ok("simulate", *SMALL, "--out", "o")
    assert "The router was called" in text
    assert "the first calls load compiled kernels" in text
    assert set(pd.read_parquet("o/prices.parquet")["device_id"]) == {"d0", "d1"}
    summary = json.loads(Path("o/summary.json").read_text())
    assert summary["decision_time"]["calls"] == len(pd.read_parquet("o/handle_times.parquet")) > 0
    ok("simulate", *SMALL, "--policy", "round_robin", "--out", "o")
    assert not Path("o/prices.parquet").exists()


def test_a_narrow_compare_says_where_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flags = (*SMALL, "--seeds", "1", "--workers", "1", "--policy", "round_robin", "--policy", "central_fifo")
    text = ok("compare", *flags)
    rows = [line for line in text.splitlines() if line.startswith(("  round_robin", "  central_fifo"))]
    assert rows
    assert max(map(len, rows)) <= 80
    assert "No room here for: " in text
    assert "`decide` is the wall time" not in text
    (enough,) = re.findall(r"COLUMNS=(\d+)", text)
    monkeypatch.setenv("COLUMNS", str(int(enough) - 1))
    assert f"No room here for: decide p99 (ms). A terminal of {enough} columns" in ok("compare", *flags)
    monkeypatch.setenv("COLUMNS", enough)
    wide = ok("compare", *flags)
    assert "`decide` is the wall time" in wide
    assert "No room here" not in wide
    monkeypatch.setenv("COLUMNS", "80")
    assert "olp-ray-out/compare/results.parquet" in text
    assert "Replaced 9 files of an earlier run in olp-ray-out/compare." in ok("compare", *flags)


PERIOD = ("--fleet", "2xB4M3000", "--rate", "0.04", "--requests", "40")


def test_bound_prints_every_metric_and_what_is_relaxed() -> None:
    text = ok("bound", *PERIOD, "--grid", "8", "--out", "o")
    assert "e2e_mean_s (periods)" in text
    assert "ttft_mean_s (periods)" in text
    assert "In time: TTFT at most 49 periods and E2E at most 500 periods." in text
    for part in ("attainment", "gap", "added up over 8 periods", "equal devices"):
        assert part in text
    assert "Of each kind" not in text
    assert "In time" not in ok("bound", *PERIOD, "--grid", "8", "--metric", "e2e_mean_s", "--out", "p")
    bounds = json.loads(Path("o/summary.json").read_text())["bounds"]
    assert bounds["e2e_mean_s"]["bound"] <= bounds["e2e_mean_s"]["achieved"]
    assert bounds["attainment"]["bound"] >= bounds["attainment"]["achieved"]


def test_a_bound_of_gpus_says_that_their_speeds_do_not_count() -> None:
    text = ok("bound", "--fleet", "1xa100-8b", "--rate", "0.05", "--requests", "20", "--out", "o")
    assert "Of each kind of device only slots and KV tokens count" in text


def test_a_bound_has_no_flags_of_routers() -> None:
    """It knows all lengths and serves everything."""
    flags = ("--predictor", "--rejects")
    assert all(flag in ok("compare", "--help") for flag in flags)
    assert not any(flag in ok("bound", "--help") for flag in flags)
    assert "No such option" in run("bound", *PERIOD, "--rejects", "never").output


def test_compare_with_a_bound() -> None:
    flags = ("--mode", "period", *PERIOD, "--seeds", "2", "--workers", "1", "--policy", "central_fifo")
    text = ok("compare", *flags, "--metric", "e2e_mean_s", "--bound", "--out", "o")
    assert "regret" in text
    assert "(periods)" in text
    assert "(s)" not in text
    assert "TTFT at most 49 periods" in text
    assert (pd.read_parquet("o/results.parquet")["regret"] > -1e-9).all()


def test_policies_lists_every_preset() -> None:
    text = ok("policies")
    assert all(name in text for name in PRESETS)
    assert any(name.startswith("paper_") for name in PRESETS)


def test_policies_says_what_each_preset_rejects() -> None:
    rows = {cells[1].strip(): cells for line in ok("policies").splitlines() if len(cells := line.split("│")) > 4}
    assert {name: rows[name][3].strip() for name in PRESETS} == {name: p.rejects for name, p in PRESETS.items()}


def test_front_prints_and_draws(tmp_path: Path) -> None:
    rows = [
        {"trial": i, "seed": 0, "param.objective.ttft": i, "e2e_mean_s": 3.0 - i, "ttft_p99_s": 1.0 + i} for i in (0, 1)
    ]
    write_results(tmp_path / "r.parquet", rows, {"e2e_mean_s": "min", "ttft_p99_s": "min"})
    text = ok("front", tmp_path / "r.parquet")
    assert "2 of 2 trials are on the front" in text
    assert (tmp_path / "front.png").exists()
    assert "1 of 2" in ok("front", tmp_path / "r.parquet", "--metric", "ttft_p99_s", "--out", tmp_path / "g.png")


@pytest.mark.ray_local
def test_sweep_then_front(ray_local: object, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "scenario: {requests: 30, rate: 30, fleet: 1xa100-8b, seeds: [0]}\n"
        "space: {objective.ttft: {values: [0, 1]}}\n"
        "objectives: {e2e_mean_s: min, ttft_p99_s: min}\n"
    )
    text = ok("sweep", file, "--out", tmp_path / "o")
    assert "2 trials are in" in text
    assert "trials are on the front" in ok("front", tmp_path / "o" / "results.parquet")


@pytest.mark.parametrize("file", sorted((ROOT / "tune_configs").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_sweeps_are_valid(file: Path) -> None:
    load_sweep(file)


def test_serve_flags_become_its_config(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("port: 9000\nfleet: 2xa100-7b\nruntime: {placement: spread}\n")
    config = build_serve_config(str(file), policy="central_fifo", shards="per_device", port=9001, host=None)
    assert (config.port, config.host, config.router.policy) == (9001, "127.0.0.1", "central_fifo")
    assert (config.runtime.shards, config.runtime.placement) == ("per_device", "spread")
    assert build_serve_config(None, shards="2").runtime.shards == 2
    with pytest.raises(ConfigError, match=r"command line: port: .*got 0"):
        build_serve_config(None, port=0)
    with pytest.raises(ConfigError, match=r"command line: runtime\.shards"):
        build_serve_config(None, shards="many")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("simulate", "--policy", "robin"), "policy 'robin' is unknown; did you mean 'round_robin'?"),
        (("simulate", "--fleet", "4xa100-9b"), "kind 'a100-9b' is unknown"),
        (("simulate", "--trace", "none.csv"), "none.csv: No such file"),
        (("simulate", "--workload", "lmsis"), "workload 'lmsis' is unknown; did you mean 'lmsys'?"),
        (("simulate", "--predictor", "magic"), "predictor 'magic' is unknown"),
        (("simulate", "--scenario", "none.yaml"), "none.yaml: No such file"),
        (("simulate", "--shards", "0"), "shards: expected at least 1, got 0"),
        (("simulate", "--seed", "-1"), "seeds must be distinct whole numbers >= 0"),
        (("compare", "--bound"), "in timed mode there is none; add mode period"),
        (
            ("bound", "--mode", "timed"),
            "grow with the batch, so in timed mode there is none; add mode period, with a rate",
        ),
        (("bound", "--metric", "e2e_p99_s"), "metric 'e2e_p99_s' has no hindsight bound"),
        (("simulate", "--arrivals", "gama:3"), "arrivals 'gama:3': expected poisson, gamma:CV"),
        (("simulate", "--arrivals", "rates:1@0", "--load", "1"), "arrivals state their own rates"),
        (("simulate", "--sessions", "3"), "sessions '3': expected TURNS:THINK_S"),
        (("simulate", "--workload", "chat1m", "--sessions", "3:5", "--rate", "1"), "sessions need one of lmsys"),
        (("compare", "--seeds", "0"), "seeds: expected at least one seed"),
        (("compare", "--metric", "e2e"), "--metric: 'e2e' is unknown"),
        (("compare", "--reference", "edf", "--policy", "round_robin"), "--reference: 'edf' is unknown"),
        (("front", "none.parquet"), "none.parquet: no such file"),
        (("sweep", "none.yaml"), "none.yaml: No such file"),
        (("workload", "describe", "none.csv"), "none.csv: No such file"),
        (("simulate", "--mode", "period2"), "mode: Input should be 'timed' or 'period', got 'period2'"),
        (("simulat",), "No such command 'simulat'"),
        (("simulate", "--requests", "many"), "'many' is not a valid integer"),
    ],
)
def test_errors_are_one_clear_line(arguments: tuple[str, ...], expected: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert expected in result.output
    assert "Traceback" not in result.output
    assert len([line for line in result.output.splitlines() if line.startswith("Error: ")]) == 1


def test_a_fault_in_a_trace_names_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,x,2\n")
    result = run("simulate", "--trace", path)
    assert result.exit_code == 2
    assert "t.csv, line 3, column 'num_prefill_tokens': expected" in result.output


def test_an_output_folder_that_can_not_be(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("")
    result = run("compare", *SMALL, "--seeds", "1", "--workers", "1", "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert "File exists" in result.output
