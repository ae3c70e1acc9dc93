"""Each promise of SECURITY.md has a test of its name; this page of pairs is complete."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (
    "What is promised about data of strangers",
    "What is promised about models of strangers",
    "Secrets",
    "The server",
)
TESTS: dict[str, tuple[str, ...]] = {
    "Headers are bounded": (
        "dataset/formats/test_tar_headers.py::test_a_damaged_or_endless_extended_header_loses_its_member_alone",
        "dataset/test_fuzz.py::test_damaged_containers_are_read_or_refused_by_name",
    ),
    "Links that leave the tar and devices are refused": (
        "dataset/formats/test_tar_members.py::test_links_stand_for_their_targets_and_broken_links_are_reported",
        "dataset/formats/test_tar_headers.py::test_sparse_members_in_every_format_and_devices_are_refused_by_name",
        "prepare/test_archive.py::test_a_member_that_is_not_a_file_or_folder_is_refused",
    ),
    "Unpacking writes only inside its folder": (
        "prepare/test_archive.py::test_a_name_that_leads_out_of_the_folder_is_refused",
        "prepare/test_archive.py::test_an_archive_whose_links_lead_outside_writes_nothing_there_in_any_python",
    ),
    "Verified by SHA-256": (
        "examples/test_downloads.py::test_every_download_of_a_recipe_is_checked_by_a_digest",
        "examples/test_downloads.py::test_an_archive_that_differs_from_the_published_archive_is_refused",
    ),
    "Where no digest is known": (
        "bin/test_download.py::test_a_download_without_a_digest_must_be_the_same_as_the_first_one",
    ),
    "Pickles are never opened": (
        "dataset/formats/test_sample_layout.py::test_pickles_are_never_opened",
    ),
    "Arrays are read without pickle": (
        "audio/test_tensors.py::test_other_arrays_are_refused_and_nothing_is_unpickled",
    ),
    "Whatever an error says of a damaged file": (
        "audio/test_fuzz.py::test_any_error_of_a_parser_is_a_bad_sample_with_its_name",
        "audio/test_fuzz.py::test_an_error_of_ours_ends_the_program_and_names_the_file",
    ),
    "Each parser of headers is tested with damage": (
        "audio/test_fuzz.py::test_damaged_bytes_of_every_format_are_audio_or_named",
        "dataset/test_fuzz.py::test_damaged_containers_are_read_or_refused_by_name",
    ),
    "Rows, columns, cells": (
        "addons/corpora/test_spreadsheets.py::test_a_bomb_of_libreoffice_is_refused_with_one_line",
        "addons/corpora/test_spreadsheets.py::test_a_bomb_of_excel_is_refused_with_one_line",
        "addons/corpora/test_elan.py::test_a_bomb_of_elan_is_refused_with_one_line",
        "addons/corpora/test_elan.py::test_an_eaf_above_a_bound_is_refused_with_one_line",
    ),
    "Definitions of entities are refused": (
        "addons/corpora/test_spreadsheets.py::test_entities_and_other_compressions_are_refused",
        "addons/corpora/test_elan.py::test_entities_in_an_eaf_are_refused",
    ),
    "Read as data": (
        "config/test_yaml_file.py::test_a_hostile_file_is_refused_with_its_path",
        "dataset/storage/test_addresses.py::test_a_list_runs_no_code_and_reads_no_local_file_through_a_driver",
    ),
    "Commands in `wav.scp` are refused": (
        "prepare/test_piped_audio.py::test_commands_are_not_run_unless_they_are_trusted",
    ),
    "Compared with the tar before a sample is used": (
        "dataset/corpus/test_shard_index.py::test_a_full_comparison_finds_an_index_with_other_samples_and_makes_it_again",
    ),
    "A wrong index makes samples bad": (
        "dataset/corpus/test_shard_index.py::test_flipped_bytes_in_the_columns_of_an_index_exchange_no_audio",
    ),
    "Only the schemes of": (
        "dataset/storage/test_addresses.py::test_every_scheme_of_the_table_is_allowed_and_no_other_driver",
        "dataset/storage/test_addresses.py::test_an_object_with_the_mark_of_a_chain_in_its_name_is_refused_by_name",
    ),
    "Link-local addresses and metadata services": (
        "dataset/storage/test_addresses.py::test_an_address_of_the_machine_is_refused_before_anything_is_asked",
        "dataset/storage/test_addresses.py::test_a_redirect_to_a_service_of_the_machine_is_refused",
        "dataset/storage/test_addresses.py::test_a_name_that_leads_to_a_service_is_refused_before_anything_is_asked",
    ),
    "`WENET_UIO_STORES` allows more": (
        "dataset/storage/test_addresses.py::test_services_of_the_machine_are_refused_until_they_are_named",
        "dataset/storage/test_addresses.py::test_other_hosts_may_be_stores",
    ),
    "Commands print control characters": (
        "base/test_printable.py::test_what_a_terminal_would_obey_is_printed_as_an_escape",
    ),
    "Tools whose output is texts": (
        "base/test_printable.py::test_a_tool_of_texts_prints_them_unchanged_except_to_a_terminal",
    ),
    "A crash of a decoder ends a data worker": (
        "dataset/test_workers.py::test_samples_that_crash_the_decoder_are_bad_and_all_others_are_read_once",
    ),
    "FFmpeg decodes sound only": ("audio/test_read.py::test_pictures_of_a_film_are_not_decoded",),
    "The server decodes each recording in a process of its own": (
        "addons/serve/test_recordings_together.py::test_a_decoder_that_crashes_ends_its_recording_with_one_line_and_no_stream_or_other_recording",
        "addons/serve/test_decoder_process.py::test_decoding_has_bounded_memory",
    ),
    "Tensors of safetensors that overlap": (
        "models/test_converted.py::test_overlaps_and_gaps_are_refused_as_safetensors_does",
    ),
    "Read with `weights_only`": (
        "models/test_converted.py::test_a_pickle_with_code_is_refused_and_does_not_run",
    ),
    "Commands that read the train.yaml": (
        "bin/test_trust_code.py::test_operators_of_a_model_are_refused_and_nothing_is_imported_or_run",
        "bin/test_trust_code.py::test_an_encoder_of_another_package_is_refused_and_not_imported",
    ),
    "A recipe trusts the modules": (
        "bin/test_trust_code.py::test_a_recipe_trusts_its_local_folder_and_its_configs_and_nothing_else",
        "bin/test_trust_code.py::test_the_tools_of_recipes_trust_the_recipe_unless_they_are_told_to_trust_any_code",
    ),
    "Operators that run in training only": (
        "bin/test_trust_code.py::test_operators_that_run_in_training_only_are_not_imported_and_need_no_trust",
    ),
    "Passwords and signatures in URIs are hidden": (
        "base/test_secrets.py::test_a_training_run_writes_and_prints_no_secret_and_resumes",
        "base/pages/test_pages.py::test_uris_are_shown_without_their_secrets_and_pictures_stay_whole",
    ),
    "Stage 5 of a recipe writes up to five sentences": (
        "tools/test_recipe_verbs.py::test_examples_are_those_of_the_development_set_or_none_if_they_are_private",
        "addons/listen/test_example_choice.py::test_examples_of_the_development_set_are_written_unless_they_are_private",
        "addons/listen/test_example_choice.py::test_five_sentences_are_spread_over_the_set",
    ),
    "A server with tokens shows these sentences": (
        "addons/serve/test_page_languages.py::test_examples_are_behind_the_token",
    ),
    "It listens on 127.0.0.1": (
        "addons/serve/test_app.py::test_a_server_at_a_loopback_address_answers_to_local_names_only",
        "addons/serve/test_serve.py::test_a_server_for_all_machines_needs_a_token_or_open_and_prints_an_address_for_them",
    ),
    "Audio and texts of clients are not written": (
        "addons/serve/test_visits.py::test_each_request_has_a_line_and_no_text_of_a_client_is_in_it",
        "addons/serve/test_client_bytes.py::test_a_form_that_cannot_be_read_is_refused_and_is_not_in_the_log",
        "audio/test_claimed_size.py::test_bytes_in_memory_are_read_without_a_file_on_a_disk",
    ),
    "Hostile messages are refused at both doors": (
        "addons/serve/test_hostile_messages.py::test_a_text_that_is_no_message_is_refused_at_both_doors",
        "addons/serve/test_hostile_messages.py::test_the_limits_of_a_stream_hold_for_a_realtime_session",
    ),
    "Wrong tokens are slowed down": (
        "addons/serve/test_tokens.py::test_wrong_tokens_are_slowed_down_and_counted_at_each_door_and_right_ones_are_not",
    ),
    "Answers do not tell what the server runs": (
        "addons/serve/test_client_bytes.py::test_no_answer_tells_what_the_server_runs",
    ),
    "Its limits hold connections": (
        "addons/serve/test_strangers.py::test_strangers_change_neither_texts_nor_times_of_clients_and_take_little_memory",
        "addons/serve/test_session.py::test_strangers_without_the_token_take_no_place_of_a_client",
    ),
    "Arrays and tensors are refused": (
        "addons/serve/test_transcriptions.py::test_arrays_and_tensors_are_refused_unless_they_are_allowed",
    ),
}
"""{begin of a sentence of SECURITY.md: tests that keep it}."""
EXPLANATIONS = (
    "Decoders are libraries in C.",
    "Operators, and an encoder or a model family of another package",
    "Lists and indexes keep the true URIs",
    "Give TLS, too",
)
"""Begins of sentences that promise nothing."""


def promises() -> list[str]:
    """Return the sentences of the sections with promises; of a table, those of its last column."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    bodies = dict(re.findall(r"^## (.+)\n((?:.|\n)*?)(?=^## |\Z)", text, re.MULTILINE))
    sentences: list[str] = []
    for section in SECTIONS:
        body = bodies[section]
        rows = [line.split("|")[2] for line in body.splitlines() if line.startswith("| ")][1:]
        for paragraph in rows or [" ".join(body.split())]:
            sentences += re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph.strip())

    return sentences


@lru_cache
def functions_of(path: str) -> set[str]:
    """Return the names of the tests of a file below tests/."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_promise_has_a_test_and_each_pair_a_promise():
    begins = (*TESTS, *EXPLANATIONS)
    unkept = [promise for promise in promises() if not promise.startswith(begins)]
    assert unkept == []
    gone = [begin for begin in begins if not any(p.startswith(begin) for p in promises())]
    assert gone == []


@pytest.mark.parametrize("begin", TESTS)
def test_the_tests_of_a_promise_are_there(begin):
    for name in TESTS[begin]:
        path, _, test = name.partition("::")
        folder = ROOT / "wenet_uio" / Path(path).parent
        if path.startswith("addons/") and not folder.is_dir():
            continue  # an add-on that was taken away promises nothing
        assert test in functions_of(path), name
