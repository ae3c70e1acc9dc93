/** SRT and WebVTT of cues {start, end, text}, as wenet_uio/addons/listen/results.py writes them. */

const LEAST = 1.0; // seconds of display, unless the next cue starts earlier

export function srt(cues) {
  return shown(cues)
    .map(({ start, end, text }, number) => `${number + 1}\n${clock(start, ",")} --> ${clock(end, ",")}\n${text}\n`)
    .join("\n");
}

export function vtt(cues) {
  const blocks = shown(cues).map(
    ({ start, end, text }) => `${clock(start, ".")} --> ${clock(end, ".")}\n${escaped(text)}\n`,
  );
  return ["WEBVTT\n", ...blocks].join("\n");
}

function shown(cues) {
  const inOrder = [...cues].sort((one, other) => one.start - other.start);
  return inOrder.map((cue, number) => {
    const nextStart = inOrder[number + 1]?.start ?? Infinity;
    return { ...cue, end: Math.max(cue.end, Math.min(cue.start + LEAST, nextStart)) };
  });
}

function clock(seconds, point) {
  const total = Math.round(Math.max(0, seconds) * 1000);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const milliseconds = String(total % 1000).padStart(3, "0");
  return `${two(total / 3600000)}:${two((total / 60000) % 60)}:${two((total / 1000) % 60)}${point}${milliseconds}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
