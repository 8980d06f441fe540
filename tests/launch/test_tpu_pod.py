"""`launch/tpu_pod.sh`: what it would call, and what it does when slices come and go.

`gcloud` is an executable of the test: it notes every call and plays a slice, whose states are in a file, one
for each look. What is on trial is the script alone, not Google Cloud.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "launch/tpu_pod.sh"
WHERE = "--project=my-project --zone=us-west4-a"
BUCKET = "gs://my-bucket/runs/ppo"
OPTIONS = (*WHERE.split(), "--type=v5litepod-32", f"--bucket={BUCKET}")
TRAINING = ("--config=configs/ppo.py", "--config.env.num_envs=4096")

GCLOUD = """\
#!/usr/bin/env bash
# Lines of $PLAY/states and $PLAY/codes are answered in turn; the last one stays.
turn() { head -n 1 "$PLAY/$1"; if (($(wc -l <"$PLAY/$1") > 1)); then sed -i 1d "$PLAY/$1"; fi; }
printf '%q ' "$@" >>"$PLAY/calls"; echo >>"$PLAY/calls"
case "$*" in
  *"queued-resources describe"*)
    now=$(turn states)
    [[ $now != NONE ]] || exit 1
    [[ $now != PREEMPTED ]] || now=ACTIVE
    echo "$now" ;;
  *"tpu-vm describe"*) if [[ -e $PLAY/preempted ]]; then echo PREEMPTED; else echo READY; fi ;;
  *"queued-resources create"* | *"queued-resources delete"*) rm -f "$PLAY/preempted" ;;
  *"tail -n "*) echo "a line of the log" ;;
  *"cat jaxrl.exit"*)
    code=$(turn codes)
    if [[ $code == GONE ]]; then touch "$PLAY/preempted"; exit 255; fi
    echo "$code" ;;
  *"buckets describe"*) [[ -e $PLAY/bucket ]] || exit 1; echo my-bucket ;;
esac
"""


class Play:
    """A folder with the fake gcloud, what it answers, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        executable = folder / "bin/gcloud"
        executable.write_text(GCLOUD)
        executable.chmod(0o755)
        self.answer(states=["NONE", "ACTIVE"], codes=["0"])
        (folder / "bucket").touch()

    def answer(self, **lines: list[str]) -> None:
        for name, values in lines.items():
            (self.folder / name).write_text("\n".join(values) + "\n")

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TPU_")}
        env |= {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "PLAY": str(self.folder)}
        command = [str(SCRIPT), *arguments]
        return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=60)

    @property
    def calls(self) -> list[str]:
        """The calls, by the words that tell them apart."""
        path = self.folder / "calls"
        lines = [shlex.split(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [_summary(words) for words in lines]


def _summary(words: list[str]) -> str:
    verb = " ".join(words[:4]).removeprefix("compute tpus ")
    command = next((word for word in words if word.startswith("--command=")), "")
    for sign in ("pip install", "setsid", "tail -n", "cat jaxrl.exit", "kill -TERM"):
        if sign in command:
            return f"{verb}: {sign}"
    return verb


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def dry(*arguments: str) -> list[str]:
    """The lines of a dry run."""
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(SCRIPT), *arguments, "--dry-run"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("tpu_pod: ")]


SSH = f"gcloud compute tpus tpu-vm ssh jaxrl {WHERE}"
DESCRIBE = f"gcloud compute tpus queued-resources describe jaxrl {WHERE} '--format=value(state.state)'"
CREATE = [
    "gcloud storage buckets describe gs://my-bucket --project=my-project '--format=value(name)'",
    DESCRIBE,
    f"gcloud compute tpus queued-resources create jaxrl {WHERE} --node-id=jaxrl "
    "--accelerator-type=v5litepod-32 --runtime-version=v2-alpha-tpuv5-lite --spot",
    DESCRIBE,
]
SETUP = [
    f"gcloud compute tpus tpu-vm scp JAXRL.tgz jaxrl:jaxrl.tgz {WHERE} --worker=all",
    f"{SSH} --worker=all '--command=mkdir -p jaxrl && tar -xzf jaxrl.tgz -C jaxrl && cd jaxrl && "
    "python3 -m pip install -q --user uv && python3 -m uv venv -q --allow-existing --python 3.12 .venv && "
    r"python3 -m uv pip install -q --python .venv -c requirements.lock -e '\''.[tpu,gcs]'\'''",
]


def test_dry_run_of_a_request() -> None:
    assert dry("create", "--spot", *OPTIONS) == CREATE


def test_dry_run_of_a_training() -> None:
    lines = dry("train", "--spot", *OPTIONS, *TRAINING)
    assert lines[:6] == CREATE + SETUP
    start, follow, code = lines[6:]
    (job,) = [word for word in shlex.split(start) if word.startswith("--command=")]
    # What the workers' shell makes of it.
    assert shlex.split(start)[:7] == [*SSH.split(), "--worker=all"][:7]
    inner = shlex.split(job.removeprefix("--command=").split("setsid sh -c ")[1].split(" >/dev/null")[0])[0]
    trained = inner.split("; ")[1].split(" >>")[0]
    assert shlex.split(trained) == [
        *".venv/bin/python -u -m jaxrl.main".split(),
        *TRAINING,
        f"--workdir={BUCKET}",
    ]
    assert follow == f"{SSH} --worker=0 '--command=tail -n 20 --pid=$(cat jaxrl.pid) -F jaxrl.log'"
    look = "if [ -e jaxrl.exit ] && [ -e jaxrl.stop ]; then echo STOPPED; "
    look += "else cat jaxrl.exit || echo RUNNING; fi"
    assert code == f"{SSH} --worker=0 '--command={look}'"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["setup", *WHERE.split()], SETUP),
        (
            ["fetch", "--project=my-project", f"--bucket={BUCKET}"],
            [f"gcloud storage rsync --recursive --project=my-project {BUCKET} runs/jaxrl"],
        ),
        (
            ["delete", "--name=mine", *WHERE.split()],
            [f"gcloud compute tpus queued-resources delete mine {WHERE} --force --quiet"],
        ),
        (
            ["logs", *WHERE.split()],
            [f"{SSH} --worker=0 '--command=tail -n +1 --pid=$(cat jaxrl.pid) -F jaxrl.log'"],
        ),
        (
            ["stop", *WHERE.split()],
            [f"{SSH} --worker=all '--command=touch jaxrl.stop; pkill -TERM -g $(cat jaxrl.pid) python'"],
        ),
    ],
    ids=lambda value: value[0] if value and " " not in value[0] else "",
)
def test_dry_runs(arguments: list[str], expected: list[str]) -> None:
    assert dry(*arguments) == expected


def test_options_may_come_from_the_environment() -> None:
    env = {"PATH": "/usr/bin:/bin", "TPU_PROJECT": "p", "TPU_ZONE": "z", "TPU_NAME": "mine"}
    command = [str(SCRIPT), "delete", "--zone=other", "--dry-run"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == (
        "gcloud compute tpus queued-resources delete mine --project=p --zone=other --force --quiet\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--config=configs/ppo.py"],
            "train needs --project=... (or TPU_PROJECT), --zone=... (or TPU_ZONE)",
        ),
        (["train", *OPTIONS], "train needs a config, such as --config=configs/ppo.py"),
        (["create", *OPTIONS[:-1]], "create needs --bucket=... (or TPU_BUCKET)"),
        (["create", *OPTIONS, "--bucket=my-bucket"], "`--bucket` (=my-bucket) must be gs://BUCKET/FOLDER"),
        (["create", *OPTIONS, "--type=v9-8"], "`--type` (=v9-8) must look like v5litepod-32"),
        (["create", *OPTIONS, "--name=My_Slice"], "`--name` (=My_Slice) must consist of"),
        (["run", *OPTIONS, *TRAINING, "--workdir=runs/x"], "writes to --bucket=gs://BUCKET/FOLDER"),
        (["create", *OPTIONS, "--spto"], "`--spto` is not an option"),
        (["destroy"], "`destroy` is not a command"),
    ],
)
def test_refusals_call_nothing(play: Play, arguments: list[str], message: str) -> None:
    done = play.run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert play.calls == []


def test_without_gcloud_nothing_starts(tmp_path: Path) -> None:
    for tool in ("bash", "env"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    command = [str(SCRIPT), "logs", *WHERE.split()]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: gcloud is not installed: install the Google Cloud CLI\n"


REQUEST = ["queued-resources create", "queued-resources describe", "tpu-vm describe"]
INSTALL = ["tpu-vm scp", "tpu-vm ssh: pip install"]
TRAIN = ["tpu-vm ssh: setsid", "tpu-vm ssh: tail -n", "tpu-vm ssh: cat jaxrl.exit"]
FIRST = ["storage buckets describe gs://my-bucket", "queued-resources describe", *REQUEST, *INSTALL, *TRAIN]


def test_a_training_without_trouble(play: Play) -> None:
    done = play.run("train", "--poll=0", *OPTIONS, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert play.calls == FIRST
    assert "a line of the log" in done.stdout


@pytest.mark.slow
def test_a_preempted_slice_is_requested_again(play: Play) -> None:
    # Worker 0 does not answer; the queued resource still says ACTIVE, its node PREEMPTED.
    play.answer(states=["NONE", "ACTIVE", "ACTIVE", "ACTIVE", "NONE", "ACTIVE"], codes=["GONE", "0"])
    done = play.run("train", "--poll=0", "--spot", *OPTIONS, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert "the slice was taken away" in done.stdout
    assert "restart 1 of 100, from the newest checkpoint" in done.stdout
    look = ["queued-resources describe", "tpu-vm describe"]
    again = [*look, "queued-resources delete", "queued-resources describe", *REQUEST, *INSTALL, *TRAIN]
    assert play.calls == [*FIRST, *look, "storage buckets describe gs://my-bucket", *again]


def test_a_suspended_request_is_replaced_and_a_waiting_one_waited_for(play: Play) -> None:
    play.answer(
        states=["SUSPENDED", "NONE", "WAITING_FOR_RESOURCES", "PROVISIONING", "PROVISIONING", "ACTIVE"]
    )
    done = play.run("create", "--poll=0", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("PROVISIONING") == 1
    assert [call for call in play.calls if "describe" not in call] == [
        "queued-resources delete",
        "queued-resources create",
    ]


def test_a_lost_worker_is_started_again_on_the_same_slice(play: Play) -> None:
    play.answer(states=["ACTIVE"], codes=["75", "RUNNING", "0"])
    done = play.run("run", "--poll=0", *OPTIONS, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert play.calls.count("tpu-vm ssh: setsid") == 2
    assert play.calls.count("tpu-vm ssh: tail -n") == 3
    assert not [call for call in play.calls if "create" in call or "delete" in call]


def test_bad_input_is_not_tried_again(play: Play) -> None:
    play.answer(states=["NONE", "ACTIVE"], codes=["2"])
    done = play.run("train", "--poll=0", *OPTIONS, *TRAINING)
    assert done.returncode == 1
    assert "training ended with exit code 2" in done.stderr
    assert play.calls == FIRST


def test_what_was_asked_to_stop_is_not_started_again(play: Play) -> None:
    play.answer(states=["ACTIVE"], codes=["RUNNING", "STOPPED"])
    done = play.run("run", "--poll=0", *OPTIONS, *TRAINING)
    assert done.returncode == 143
    assert "stopped, as asked" in done.stdout
    assert play.calls.count("tpu-vm ssh: setsid") == 1


def test_restarts_are_limited(play: Play) -> None:
    play.answer(states=["ACTIVE"], codes=["143"])
    done = play.run("run", "--poll=0", "--restart=2", *OPTIONS, *TRAINING)
    assert done.returncode == 1
    assert "that was restart 2 of 2: giving up" in done.stderr
    assert play.calls.count("tpu-vm ssh: setsid") == 3


def test_a_failed_request_ends(play: Play) -> None:
    play.answer(states=["NONE", "FAILED"])
    done = play.run("create", "--poll=0", *OPTIONS)
    assert done.returncode == 1
    assert "the request failed" in done.stderr


def test_a_bucket_that_is_not_there_costs_nothing(play: Play) -> None:
    (play.folder / "bucket").unlink()
    done = play.run("train", "--poll=0", *OPTIONS, *TRAINING)
    assert done.returncode == 1
    assert f"the bucket of {BUCKET} does not exist" in done.stderr
    assert play.calls == ["storage buckets describe gs://my-bucket"]


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("", False)])
def test_delete_asks(play: Play, answer: str, deleted: bool) -> None:
    done = play.run("delete", *WHERE.split(), text=answer)
    assert done.returncode == (0 if deleted else 1)
    assert play.calls == (["queued-resources delete"] if deleted else [])


def test_delete_does_not_ask_when_told(play: Play) -> None:
    assert play.run("delete", "--yes", *WHERE.split()).returncode == 0
    assert play.calls == ["queued-resources delete"]


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize(
    "value",
    [
        "my 'odd' $file.py",
        "a\n'b'; touch evil; '\\'$(touch evil)`touch evil`&\t|\"*?~\x1b!\\n",
        "'",
        "\\",
        "é\n\n",
    ],
)
def test_the_job_on_a_worker(value: str, shell: str, tmp_path: Path) -> None:
    """The very command for the workers, run by a shell here with another python."""
    script = "\n".join(dry("run", *OPTIONS, f"--config={value}"))
    words = shlex.split(script)
    (word,) = [word for word in words if word.startswith("--command=") and "setsid" in word]
    python = tmp_path / "jaxrl/.venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\nexit 75\n')
    python.chmod(0o755)
    # Whatever reads the exit code waits for it; here the shell does.
    waiting = "; while [ ! -s ../jaxrl.exit ]; do sleep 0.05; done"
    job = word.removeprefix("--command=").removesuffix("&") + "&" + waiting.replace(";", "", 1)
    subprocess.run([shell, "-c", job], cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "jaxrl.exit").read_text() == "75\n"
    log = (tmp_path / "jaxrl.log").read_bytes().decode().split("\0")[:-1]
    assert log == ["-u", "-m", "jaxrl.main", f"--config={value}", f"--workdir={BUCKET}"]
    assert not list(tmp_path.rglob("evil"))
    assert int((tmp_path / "jaxrl.pid").read_text()) > 1
