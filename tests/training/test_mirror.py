"""A copy of the run's folder in a bucket, kept while it trains: S3 by moto's server, with faults, and gs://."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError, check_config, default_config
from jaxrl.training.mirror import Mirror
from tests import processes
from tests.faults.harness import ROOT
from tests.faults.tiny import STEPS
from tests.runs.storage.gcs_server import GcsServer
from tests.runs.storage.s3_server import s3_server

# Files that belong to this machine alone.
LOCAL = (".lock", "train.log")
POLICY = ROOT / "docs" / "s3_policy.json"


def client(environment: dict[str, str]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )


def objects(s3: Any) -> dict[str, Any]:
    """Contents, metadata by name below s3://runs/mine."""
    found = s3.get_paginator("list_objects_v2").paginate(Bucket="runs", Prefix="mine/")
    names = [entry["Key"] for page in found for entry in page.get("Contents", ())]
    return {name.removeprefix("mine/"): s3.get_object(Bucket="runs", Key=name) for name in names}


def train(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    arguments = ["--config=tests/faults/tiny.py", f"--workdir={folder}"]
    arguments += [
        "--config.storage.sync_to=s3://runs/mine",
        f"--config.storage.sync_every_steps={10 * STEPS}",
    ]
    return processes.run("-m", "jaxrl", "train", *arguments, env=os.environ | environment)


def assert_mirrored(folder: Path, s3: Any) -> None:
    found = objects(s3)
    identity = (folder / ".run").read_text().strip()
    manifest = json.loads(found.pop("manifest.json")["Body"].read())
    assert (manifest["run"], manifest["step"]) == (identity, str(40 * STEPS))
    here = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    there = {name: entry["Body"].read() for name, entry in found.items()}
    assert {n: x for n, x in there.items() if n in here and n not in LOCAL} == {
        n: x for n, x in here.items() if n not in LOCAL
    }
    # Checkpoints that the run has deleted since are kept there.
    assert {name.split("/")[0] for name in there.keys() - here.keys()} <= {"checkpoints"}
    assert all(entry["Metadata"]["run"] == identity for entry in found.values())
    assert {int(entry["Metadata"]["step"]) % STEPS for entry in found.values()} == {0}
    assert manifest["files"].keys() == there.keys()


@pytest.mark.long
def test_a_run_is_mirrored_to_s3_while_the_server_fails_now_and_then(tmp_path: Path) -> None:
    count = iter(range(1_000_000))
    with s3_server(lambda environ: 503 if next(count) % 7 == 3 else None) as environment:
        done = train(tmp_path / "run", environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert_mirrored(tmp_path / "run", client(environment))


# It changes with the page alone.
@pytest.mark.long
def test_the_policy_of_the_docs_suffices_and_allows_no_more(tmp_path: Path) -> None:
    with s3_server() as environment:
        import boto3
        import requests

        address = environment["AWS_ENDPOINT_URL"]
        iam = boto3.client(
            "iam",
            endpoint_url=address,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        iam.create_user(UserName="trainer")
        policy = POLICY.read_text().replace("BUCKET", "runs").replace("PREFIX", "mine")
        iam.put_user_policy(UserName="trainer", PolicyName="mirror", PolicyDocument=policy)
        key = iam.create_access_key(UserName="trainer")["AccessKey"]
        requests.post(f"{address}/moto-api/reset-auth", data="0", timeout=10)
        trainer = environment | {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }
        done = train(tmp_path / "run", trainer)
        assert (done.returncode, done.stderr) == (0, "")
        # On a slow machine the run says that it is still copying.
        warnings = [line for line in done.stdout.splitlines() if line.startswith("warning")]
        assert all(line.startswith("warning: copying to") for line in warnings)
        with pytest.raises(Exception, match="AccessDenied|Forbidden|not authorized"):
            client(trainer).put_object(Bucket="runs", Key="other", Body=b"")


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of gcsfs
def test_copies_come_at_their_intervals_and_at_the_end(tmp_path: Path, gcs: GcsServer) -> None:
    rows = tmp_path / "metrics.jsonl"
    rows.write_text("")
    mirror = Mirror(str(tmp_path), "gs://runs/mine", "abc", every_steps=100)
    for step in (50, 99):
        mirror.write(step, {})
    assert gcs.files("runs") == {}
    mirror.close()
    assert gcs.files("runs").keys() == {"mine/metrics.jsonl", "mine/manifest.json"}
    manifest = json.loads(gcs.files("runs")["mine/manifest.json"])
    assert (manifest["run"], manifest["step"]) == ("abc", "99")


def test_a_failure_is_told_once_and_made_up_for(
    tmp_path: Path, gcs: GcsServer, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    gcs.rule = lambda request: 403
    mirror = Mirror(str(tmp_path), "gs://runs/mine", "abc", every_steps=100)
    with caplog.at_level(logging.WARNING, "jaxrl"):
        for _ in range(2):
            mirror._copy()
        gcs.rule = lambda request: None
        mirror.close()
    # Google's client, which the whole process shares, may warn of its own look for credentials meanwhile.
    told = [record.getMessage()[:52] for record in caplog.records if record.name.startswith("jaxrl.")]
    assert told == ["no copy in gs://runs/mine, training continues: `DEST"]
    assert "mine/metrics.jsonl" in gcs.files("runs")


@pytest.mark.parametrize(
    "address", ["s3://", "s3://bucket", "s3://bucket/", "/folder", "az://a/b", "bucket/x"]
)
def test_other_addresses_are_refused(address: str) -> None:
    config = default_config()
    config.storage.sync_to = address
    with pytest.raises(
        ConfigError, match="`storage.sync_to` .* must be s3://BUCKET/PREFIX or gs://BUCKET/PREF"
    ):
        check_config(config)
