"""The columns of a table of transcripts, by their names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.rows import AUDIO_COLUMNS, KEY_COLUMNS, TEXT_COLUMNS
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES

COLUMNS = {
    "wav": AUDIO_COLUMNS,
    "text": TEXT_COLUMNS,
    "key": KEY_COLUMNS,
    "start": ("start", "offset"),
    "end": ("end",),
    "duration": ("duration",),
    "speaker": ("speaker", "spk", "client_id", "speaker_id"),
    "part": ("part", "split", "subset"),
    "channel": ("channel",),
}
"""Our name of a column -> names of it that are recognised in any case, preferred ones first. Other
columns are kept as fields of the line."""
KNOWN_COLUMNS = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in COLUMNS.items())
OTHER_WORDS = {
    "wav": """
        audiofile audiofilename audiofiles audiofilepath audioname clip clipname wavfile wavpath wavname
        soundfile sound recordingfile mediafile filelocation filepath audiourl
        datei dateiname dateipfad audiodatei audiodateien tondatei wavdatei pfad aufnahme
        fichier fichieraudio nomdufichier nomfichier chemin cheminaudio enregistrement
        archivo archivoaudio archivodeaudio nombredearchivo nombrearchivo fichero ruta grabación
        fileaudio nomefile nomedelfile percorso registrazione
        arquivo arquivodeáudio áudio nomedoarquivo ficheiro caminho gravação
        bestand bestandsnaam audiobestand plik nazwapliku plikaudio ścieżka soubor názevsouboru
        ljudfil filnamn fil lydfil tiedosto tiedostonimi
        файл имяфайла аудио аудиофайл путь запись αρχείο dosya dosyaadı sesdosyası ses
        音频 音频文件 音频文件名 音频路径 音频名 文件 文件名 文件名称 文件路径 路径 录音 录音文件 语音 语音文件
        音檔 音檔名稱 檔案 檔名 檔案名稱 錄音 語音
        音声 音声ファイル 音声ファイル名 ファイル ファイル名 パス 録音
        오디오 오디오파일 음성 음성파일 파일 파일명 파일이름 경로
    """,
    "text": """
        sentences transcripts transcriptions transcribed label utterancetext utterance_text words
        annotation target
        satz sätze transkript transkription wortlaut äußerung gesprochen inhalt
        texte phrase phrases énoncé contenu transcriptiontexte
        texto frase frases oración transcripción enunciado
        testo frasi trascrizione enunciato
        transcrição sentença zin zinnen tekst transcriptie zdanie transkrypcja treść věta přepis
        mening meningar transkribering sætning setning lause teksti
        текст предложение фраза расшифровка транскрипция транскрипт κείμενο metin cümle
        文本 文字 文本内容 句子 内容 转写 转写文本 转录 转录文本 标注 标注文本 台词 语句 话语
        文字內容 內容 逐字稿 轉錄 轉寫 文稿
        テキスト 文 文章 書き起こし 文字起こし 発話 発話内容 転記
        텍스트 문장 전사 전사문 내용 대사
    """,
    "key": "uttid utteranceid segmentid",
    "start": """
        starttime startsec startseconds begin begintime onset tmin xmin timestart timefrom from
        beginn anfang startzeit von début debut inicio inizio início początek začátek başlangıç
        начало αρχή 开始 开始时间 起始 起始时间 開始 開始時間 開始時刻 시작 시작시간
    """,
    "end": """
        endtime endsec endseconds stop stoptime tmax xmax timeend timeto to
        ende endzeit bis fin final fine fim koniec konec bitiş
        конец τέλος 结束 结束时间 终止 終了 終了時刻 結束 結束時間 종료 종료시간 끝
    """,
    "duration": """
        durationsec durationseconds dauer durée duración durata duração süre
        длительность 时长 持续时间 時長
    """,
    "speaker": """
        speakername sprecher sprecherin locuteur locutrice hablante locutor parlante falante spreker
        mówca диктор говорящий konuşmacı 说话人 发音人 說話者 話者 화자
    """,
    "part": "teil 部分",
    "channel": "kanal",
}
"""Further words for columns, as `_folded` writes them: of other programs and languages. They are
recognised in tables only, after the names of COLUMNS."""
MILLISECONDS = re.compile(r"(?:in)?(?:msec|ms|milliseconds?|millisekunden|毫秒)")
"""Units behind the name of a column of times, folded."""
SECONDS = re.compile(r"(?:in)?(?:hhmmssms|ssmsec|seconds?|sekunden|sec|s|秒)?")
"""Units of seconds and clock times, or none; ELAN writes `Begin Time - hh:mm:ss.ms`."""
TIMES = ("start", "end", "duration")
CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d+)?)")
"""A time: `75.5`, `75,5`, `1:15.5`, `0:01:15.5`."""
SAMPLED = 100
"""Rows that a guess looks at."""
NUMBERED = "column {}"
"""Name of a column that has none, from 1."""
IsAudio = Callable[[str], bool]
"""Tells whether a cell names an audio file."""


@dataclass(frozen=True)
class Choice:
    """The columns that the user has chosen, by name or by number from 1."""

    audio: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are."""

    names: list[str]
    """For each column our name, or else its own name."""
    has_header: bool
    """The first row has names of columns, and is no utterance."""
    notes: list[str]
    """What was guessed, with the options that choose other columns."""
    milliseconds: frozenset[str] = frozenset()
    """Columns `start`, `end` and `duration` that have milliseconds; others have seconds."""


def _folded(name: str) -> str:
    """Return the name of a column in small letters, without blanks, marks and punctuation."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in plain if letter.isalnum())


WORDS_OF = {
    our_name: [_folded(word) for word in (*names, *OTHER_WORDS[our_name].split())]
    for our_name, names in COLUMNS.items()
}
"""Our name of a column -> its words, folded, preferred ones first."""


def parse_seconds(text: str) -> float | None:
    """Return a time in seconds: a number, also with a decimal comma, or a clock time.

    None if it is neither.
    """
    match = CLOCK.fullmatch(text)
    if match is not None:
        hours, minutes, seconds = match.groups(default="0")
        return float(hours) * 3600 + float(minutes) * 60 + float(seconds.replace(",", "."))

    try:
        return float(text)
    except ValueError:
        return None


def has_audio_suffix(cell: str) -> bool:
    """Tell whether a cell is the name of an audio file by its suffix."""
    name, dot, suffix = cell.rpartition(".")
    return bool(name and dot) and suffix.lower() in AUDIO_SUFFIXES


def named_columns(header: Sequence[str]) -> dict[str, int]:
    """Return the columns that a header names, as {our name: column}."""
    column_of: dict[str, int] = {}
    folded = [_folded(name) for name in header]
    for our_name, words in WORDS_OF.items():
        column = _find_named_column(folded, words, our_name)
        if column is not None and column not in column_of.values():
            column_of[our_name] = column

    return column_of


def _find_named_column(folded: Sequence[str], words: Sequence[str], our_name: str) -> int | None:
    """Return the column that has the most preferred of the words as its name."""
    for word in words:
        for column, name in enumerate(folded):
            if name == word or (our_name in TIMES and _has_time_unit(name, word)):
                return column

    return None


def _has_time_unit(name: str, word: str) -> bool:
    """Tell whether a folded name is a word and a unit of time, as `startsec`."""
    unit = name.removeprefix(word)
    return unit != name and bool(SECONDS.fullmatch(unit) or MILLISECONDS.fullmatch(unit))


class NamedColumns(NamedTuple):
    """What the first row of a table and the user say of its columns."""

    column_of: dict[str, int]
    """{our name: column}, of those that are named or chosen."""
    chosen: dict[str, int]
    """Those that the user has chosen."""
    has_header: bool
    """The first row has names of columns, and is no utterance."""

    def has_audio(self, sample: Sequence[Sequence[str]], is_audio: IsAudio) -> bool:
        """Tell whether the column of audio is chosen, or is named and has a file."""
        if "wav" in self.chosen:
            return True
        column = self.column_of.get("wav")
        return column is not None and audio_share(sample, column, is_audio) > 0


def sample_rows(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return the rows by which columns are understood: those below the first, if there are any."""
    return rows[1 : 1 + SAMPLED] or rows


def known_columns(rows: Sequence[Sequence[str]], choice: Choice, is_audio: IsAudio) -> NamedColumns:
    """Return what the first row and the user say of the columns of a table.

    The first row names columns unless it names audio.

    Raises:
        ListError: a chosen column does not exist.
    """
    header = rows[0]
    chosen: dict[str, int] = {}
    if choice.audio:
        chosen["wav"] = _find_column(header, choice.audio, "--audio_field")
    if choice.text:
        chosen["text"] = _find_column(header, choice.text, "--text_field")

    names_audio = any(is_audio(cell) for cell in header)
    named = {} if names_audio else named_columns(header)
    column_of = _usable_columns(named, chosen, header, sample_rows(rows))

    folded = {_folded(name) for name in header}
    chosen_names = {_folded(field) for field in (choice.audio, choice.text) if field}
    has_chosen_name = not folded.isdisjoint(chosen_names)
    has_known_word = "wav" in named or "text" in named
    return NamedColumns(column_of, chosen, has_known_word or has_chosen_name)


def columns_by_name(
    rows: Sequence[Sequence[str]], choice: Choice, is_audio: IsAudio
) -> Columns | None:
    """Return what the columns of a table are if nothing has to be guessed; None otherwise.

    Nothing has to be guessed of two columns of audio and text, either.

    Raises:
        ListError: a chosen column does not exist.
    """
    first_row = rows[0]
    known = known_columns(rows, choice, is_audio)
    if "text" in known.column_of and known.has_audio(sample_rows(rows), is_audio):
        notes = text_column_note(first_row, known)
        return name_columns(first_row, known.column_of, known.has_header, notes)

    if len(first_row) == 2 and not known.column_of:
        audio, text = first_row
        if is_audio(audio) and not is_audio(text):
            return Columns(["wav", "text"], has_header=False, notes=[])

    return None


def _find_column(header: Sequence[str], field: str, option: str) -> int:
    """Return the column of a name, or else of a number from 1."""
    folded = [_folded(name) for name in header]
    if field in header:
        return list(header).index(field)
    if _folded(field) in folded:
        return folded.index(_folded(field))
    if field.isdecimal() and 1 <= int(field) <= len(header):
        return int(field) - 1

    raise ListError(
        f"no column {field}, which {option} names; the first row has {', '.join(header)}"
    )


def _usable_columns(
    column_of: Mapping[str, int],
    chosen: Mapping[str, int],
    header: Sequence[str],
    sample: Sequence[Sequence[str]],
) -> dict[str, int]:
    """Return the named columns with those that were chosen instead.

    Without columns of times by a word of OTHER_WORDS that hold no time: `from` may be a person.
    """
    usable = dict(chosen)
    for our_name, column in column_of.items():
        if our_name in chosen or column in chosen.values():
            continue
        if our_name in TIMES and header[column].strip().lower() not in COLUMNS[our_name]:
            times = [parse_seconds(cell_at(row, column)) for row in sample]
            if all(time is None for time in times):
                continue

        usable[our_name] = column

    return usable


def cell_at(row: Sequence[str], column: int) -> str:
    """Return a cell of a row, which may be shorter than others; empty if it has no such cell."""
    return row[column].strip() if column < len(row) else ""


def audio_share(sample: Sequence[Sequence[str]], column: int, is_audio: IsAudio) -> float:
    """Return the share of the rows whose cell in a column names audio."""
    return mean(is_audio(cell_at(row, column)) for row in sample)


def name_columns(
    header: Sequence[str], column_of: Mapping[str, int], has_header: bool, notes: list[str]
) -> Columns:
    """Name the columns: by our names where `column_of` has them, else by their titles."""
    titles = [title.strip().lower() if has_header else "" for title in header]
    our_names = {column: name for name, column in column_of.items()}
    names: list[str] = []
    for column in range(len(header)):
        if column in our_names:
            names.append(our_names[column])
        else:
            names.append(_other_name(titles, column, column_of))

    milliseconds: set[str] = set()
    for name in TIMES:
        if has_header and name in column_of and _has_milliseconds(header[column_of[name]]):
            milliseconds.add(name)

    return Columns(names, has_header, notes, frozenset(milliseconds))


def _other_name(titles: Sequence[str], column: int, column_of: Mapping[str, int]) -> str:
    """Return the name of a column that has none of our meanings: its title, or its number."""
    title = titles[column] or NUMBERED.format(column + 1)
    # Of two columns of one title, both keep it, and the reader refuses them.
    if title not in column_of or titles[column_of[title]] == title:
        return title
    return f"other_{title}"


def _has_milliseconds(name: str) -> bool:
    """Tell whether the name of a column is a word for a time and milliseconds."""
    folded = _folded(name)
    for our_name in TIMES:
        for word in WORDS_OF[our_name]:
            if folded.startswith(word) and MILLISECONDS.fullmatch(folded.removeprefix(word)):
                return True

    return False


def text_column_note(header: Sequence[str], known: NamedColumns) -> list[str]:
    """Say which of several columns of texts is taken, unless the user has chosen one."""
    if not known.has_header or "text" in known.chosen:
        return []

    words = WORDS_OF["text"]
    titles = [title.strip().lower() for title in header if _folded(title) in words]
    titles.sort(key=lambda title: words.index(_folded(title)))  # preferred ones first
    return _note_first_column(titles)


def _note_first_column(texts: Sequence[str]) -> list[str]:
    """Say which of several columns of texts is taken, the first one, and the option for others."""
    if len(texts) < 2:
        return []
    options = " or ".join(f"--text_field {name}" for name in texts[1:])
    return [f"the column {texts[0]} has the texts; {options} takes another column"]


def tell_text_column(path: str, columns: Collection[str], text_field: str | None) -> None:
    """Print which of several columns of texts is taken, unless the user has chosen one."""
    if not text_field:
        text_columns = [name for name in TEXT_COLUMNS if name in columns]
        for note in _note_first_column(text_columns):
            print(f"{path}: {note}")
