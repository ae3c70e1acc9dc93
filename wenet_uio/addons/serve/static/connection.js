/** The WebSocket of a stream: WeNet's protocol with the optional fields of this server. */

import { say, sayRefusal } from "./language.js";
import { noAnswer } from "./notices.js";

const BYTES_PER_SAMPLE = 2;

/** Speech on its way to the server, and text on its way back. */
export class Connection {
  /**
   * @param {object} start fields of the start signal: sample_rate in Hz, hot_words, token
   * @param {object} on callbacks: ready(message), partial(text), final(segment), end(), failure(words);
   *   the last is either end or failure
   */
  constructor(start, on) {
    this.on = on;
    this.sampleRate = start.sample_rate;
    this.waiting = []; // packets before the server is ready
    this.isReady = this.isOver = this.hasEnded = this.wasOpen = false;
    const address = new URL(".", document.baseURI);
    address.protocol = address.protocol.replace("http", "ws");
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.wasOpen = true;
      this.socket.send(JSON.stringify({ signal: "start", nbest: 1, continuous_decoding: true, ...start }));
    };
    this.socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    this.socket.onclose = () => this.fail(this.reasonOfClose());
  }

  /** Seconds of sound that the connection has not yet taken. */
  get delay() {
    const queued = this.waiting.reduce((sum, packet) => sum + packet.byteLength, 0);
    return (this.socket.bufferedAmount + queued) / BYTES_PER_SAMPLE / this.sampleRate;
  }

  /** Send a packet of 16-bit samples. */
  send(samples) {
    if (this.isOver || this.hasEnded) return;
    if (this.isReady) this.socket.send(samples);
    else this.waiting.push(samples);
  }

  /** No more samples; the server sends the last text, and then its end. */
  end() {
    if (this.isOver || this.hasEnded) return;
    this.hasEnded = true;
    if (this.isReady) this.socket.send(JSON.stringify({ signal: "end" }));
  }

  /** Close without waiting for the text. */
  close() {
    this.isOver = true;
    this.socket.close();
  }

  receive(message) {
    if (this.isOver) return;
    if (message.status !== "ok") {
      this.fail(sayRefusal(message.code, message.message));
    } else if (message.type === "server_ready") {
      this.isReady = true;
      for (const packet of this.waiting.splice(0)) this.socket.send(packet);
      if (this.hasEnded) this.socket.send(JSON.stringify({ signal: "end" }));
      this.on.ready(message);
    } else if (message.type === "partial_result") {
      this.on.partial(sentenceOf(message));
    } else if (message.type === "final_result") {
      this.on.final(message.segment ?? { start: 0, end: 0, text: sentenceOf(message), words: [], cues: [] });
    } else if (message.type === "speech_end") {
      this.close();
      this.on.end();
    }
  }

  fail(words) {
    if (this.isOver) return;
    this.close();
    this.on.failure(words);
  }

  reasonOfClose() {
    if (!this.wasOpen) return noAnswer();
    if (!this.isReady) return say("closedBefore");
    return say("connectionLost");
  }
}

/** The best text of a result; `nbest` is JSON inside JSON. */
function sentenceOf(message) {
  return JSON.parse(message.nbest)[0]?.sentence ?? "";
}
