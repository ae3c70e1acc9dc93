/** The microphone as packets of 16-bit samples. */

import { say } from "./language.js";
import { noAnswer } from "./notices.js";

const REFUSALS = {
  NotAllowedError: "microphoneRefused",
  NotFoundError: "microphoneMissing",
  NotReadableError: "microphoneUsed",
}; // names of errors, and keys of texts.js

const FLUSH_SECONDS = 0.5;

/** An error whose message is for the person at the page. */
export class MicrophoneError extends Error {}

/** The reason why this page can have no microphone at all; empty if it can. */
export function obstacle() {
  if (!window.isSecureContext) return say("insecurePage", { origin: location.origin });
  if (!navigator.mediaDevices || !window.AudioWorkletNode) return say("oldBrowser");
  return "";
}

/**
 * Open the microphone; the browser asks the person.
 * @param {(samples: ArrayBuffer, level: number) => void} onPacket 16-bit samples of about 100 ms, level in dBFS
 * @param {() => void} onLost the microphone was disconnected
 * @returns {Promise<{sampleRate: number, close: () => Promise<void>}>} `close` delivers the last packet first
 * @throws {MicrophoneError}
 */
export async function openMicrophone(onPacket, onLost) {
  const why = obstacle();
  if (why) throw new MicrophoneError(why);
  const context = new AudioContext();
  let stream;
  try {
    await context.audioWorklet.addModule(new URL("packets.js", import.meta.url));
  } catch {
    release(stream, context);
    throw new MicrophoneError(noAnswer()); // the file comes from the server
  }
  try {
    // The model was trained on sound as it is: no suppression of noise or echoes.
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false };
    stream = await navigator.mediaDevices.getUserMedia({ audio });
    await context.resume();
  } catch (error) {
    release(stream, context);
    throw new MicrophoneError(say(REFUSALS[error.name] ?? "microphoneFailed"), { cause: error });
  }
  const node = new AudioWorkletNode(context, "packets");
  let flushed;
  const whenFlushed = new Promise((resolve) => (flushed = resolve));
  node.port.onmessage = ({ data }) => (data ? onPacket(data.samples, data.level) : flushed());
  stream.getAudioTracks()[0].addEventListener("ended", onLost);
  // Browsers run only nodes that lead to an output. This node's output is silence.
  context.createMediaStreamSource(stream).connect(node).connect(context.destination);

  const close = async () => {
    node.port.postMessage("flush");
    const timeout = new Promise((resolve) => setTimeout(resolve, FLUSH_SECONDS * 1000));
    await Promise.race([whenFlushed, timeout]); // a context that the browser has stopped answers nothing
    node.port.onmessage = null;
    release(stream, context);
  };
  return { sampleRate: context.sampleRate, close };
}

function release(stream, context) {
  stream?.getTracks().forEach((track) => track.stop());
  if (context.state !== "closed") context.close();
}
