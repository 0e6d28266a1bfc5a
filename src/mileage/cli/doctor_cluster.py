"""Facts of --manifest and --k8s, below what was watched."""

from __future__ import annotations

from mileage.cli.doctor_arguments import DoctorArguments
from mileage.doctor.collect.k8s_facts import manifest_facts
from mileage.doctor.collect.merge_facts import SourcedFacts
from mileage.scrape.doctor_k8s import look_at_cluster
from mileage.scrape.doctor_manifest import read_manifest
from mileage.scrape.yaml_documents import yaml_value

__all__ = ["cluster_parts"]


def cluster_parts(arguments: DoctorArguments) -> tuple[list[SourcedFacts], dict[str, str]]:
    """Facts by source, and for each part of a cluster that told nothing why.

    All files are one deployment, and are read together: an autoscaler may stand in another file
    than what it scales. Raises ConfigError.
    """
    parts: list[SourcedFacts] = []
    notes: dict[str, str] = {}
    if arguments.k8s is not None:
        cluster = look_at_cluster(arguments.k8s)
        place = f"Kubernetes, {arguments.k8s}"
        parts += manifest_facts(
            cluster.documents, place=place, read_yaml=yaml_value, focus=cluster.name
        )
        notes |= cluster.notes
    if arguments.manifest:
        documents = [read_manifest(path) for path in arguments.manifest]
        parts += manifest_facts(documents, place="manifests", read_yaml=yaml_value)
    return parts, notes
