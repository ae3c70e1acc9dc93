/** Send a file for transcription, as OpenAI's interface takes it; the text comes segment by segment. */

import { EventReader } from "./events.js";
import { say, sayRefusal } from "./language.js";

/** An error whose message is for the person at the page. `status`: that of HTTP; 0 without an answer. */
export class UploadError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {File} file
 * @param {{hotWords: string[], token: string, channel: string, mostBytes: number?}} options
 * @param {(words: string) => void} onProgress what happens now
 * @param {(segment: object) => void} onSegment called with each segment {start, end, text, words, cues, channel_name?}; times in
 *   seconds
 * @param {AbortSignal} signal ends the transfer
 * @returns {Promise<{segments: object[], duration: number, unspelled: string[]?, cut_short: boolean?}>} all segments; duration in
 *   seconds; hot words that the model cannot spell; whether the file ends too early
 * @throws {UploadError}
 */
export async function transcribe(file, { hotWords, token, channel, mostBytes }, onProgress, onSegment, signal) {
  if (mostBytes && file.size > mostBytes) {
    throw new UploadError(say("fileTooLarge", { size: mebibytes(file.size), most: mebibytes(mostBytes) }));
  }
  await file.slice(0, 1).arrayBuffer().catch(() => {
    throw new UploadError(say("notReadable"));
  });
  const form = new FormData();
  const fields = {
    file,
    model: "default",
    response_format: "verbose_json",
    hot_words: hotWords.join("\n"),
    channel,
    stream: "true",
  };
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return post(form, token, onProgress, onSegment, signal);
}

/** XMLHttpRequest, because fetch does not tell how much was sent. */
function post(form, token, onProgress, onSegment, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "v1/audio/transcriptions");
    request.responseType = "text";
    if (token) request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.upload.onprogress = ({ loaded, total }) => onProgress(say("sending", { percent: Math.floor((100 * loaded) / total) }));
    request.upload.onload = () => onProgress(say("recognising"));
    const cut = () => reject(new UploadError(say("noTextCame")));
    const refused = (error) => {
      const words = error?.message ?? `${request.status} ${request.statusText}`;
      reject(new UploadError(sayRefusal(error?.code, words), request.status));
    };
    const reader = new EventReader((event) => {
      if (event.type === "transcript.text.delta") {
        onProgress(say("recognisingShare", { percent: percent(event) }));
        if (event.segment) onSegment(event.segment);
      } else if (event.type === "transcript.text.done") {
        resolve(event);
      } else {
        refused(event.error);
      }
    });
    const isStream = () => request.getResponseHeader("Content-Type")?.startsWith("text/event-stream");
    request.onprogress = () => isStream() && reader.read(request.responseText);
    request.onerror = cut;
    request.onload = () => {
      if (!isStream()) return refused(parsed(request.responseText)?.error);
      reader.read(request.responseText);
      return cut(); // without effect after the last event
    };
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a proxy answers with a page of its own; the status says more
  }
}

function percent({ seconds, duration }) {
  return duration ? Math.min(100, Math.floor((100 * seconds) / duration)) : 0;
}

function mebibytes(bytes) {
  return (bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0);
}
