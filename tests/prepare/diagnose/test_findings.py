from wenet_uio.prepare.diagnose.findings import KEPT, Finding, Report


def test_all_findings_are_counted_all_losses_and_the_first_thousand_suspects_are_named():
    report = Report(5000, 1.0)
    for number in range(1500):
        report.add(Finding("silent", f"s{number}", ""))
        report.add(Finding("unreadable", f"u{number}", ""))
    named = [finding.key for finding in report.findings]
    assert KEPT == 1000
    assert [key for key in named if key.startswith("s")] == [f"s{number}" for number in range(1000)]
    assert [key for key in named if key.startswith("u")] == [f"u{number}" for number in range(1500)]
    assert (report.counts["silent"], report.counts["unreadable"], report.losses) == (
        1500,
        1500,
        1500,
    )


def test_the_json_has_every_kind_and_its_keys():
    values = Report(0, 0.0).as_dict()
    assert list(values) == [
        *("utterances", "hours", "losses", "counts", "filtered", "rates", "quantiles"),
        *("unknown_units", "unseen_units", "findings"),
    ]
    assert values["counts"] == dict.fromkeys(
        [
            *(
                "broken_shard",
                "empty_shard",
                "changed_shard",
                "not_indexed",
                "unreadable",
                "changed_length",
                "duplicate_key",
            ),
            *(
                "empty_text",
                "stale_index",
                "silent",
                "clipped",
                "past_the_end",
                "other_channel",
                "other_rate",
                "duration",
                "characters_per_second",
            ),
            *("unknown_language", "space_to_unknown", "unknown_unit", "no_ctc_path"),
            *("invisible_character", "decomposed_letter", "look_alike_letter"),
        ],
        0,
    )
