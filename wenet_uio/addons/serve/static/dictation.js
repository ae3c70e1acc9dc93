/** Microphone and connection together: speech goes out while it is spoken, text comes back. */

import { Connection } from "./connection.js";
import { say } from "./language.js";
import { openMicrophone } from "./microphone.js";

const SLOW = 2; // seconds of sound that wait before the page says that the connection is slow
const TOO_SLOW = 20; // seconds; the recording ends, because memory is limited
const SILENT = -80; // dBFS; quieter than any open microphone
const SILENT_SECONDS = 3;

export class Dictation {
  /**
   * @param {object} start hot_words and token of the start signal
   * @param {object} on callbacks: those of Connection, sound(dBFS) for each packet,
   *   warning(key, words or ""), stopping(words or ""): the recording ends, and its last text is on its way
   */
  constructor(start, on) {
    this.start = start;
    this.on = on;
    this.seconds = 0;
    this.silence = 0;
  }

  /**
   * Ask for the microphone and connect.
   * @throws {MicrophoneError}
   */
  async open() {
    this.microphone = await openMicrophone(
      (samples, level) => this.send(samples, level),
      () => this.stop(say("microphoneLost")),
    );
    this.sampleRate = this.microphone.sampleRate;
    const failure = (words) => (this.leave(), this.on.failure(words));
    const end = () => (this.leave(), this.on.end()); // the server may end first
    this.connection = new Connection({ ...this.start, sample_rate: this.sampleRate }, { ...this.on, end, failure });
  }

  send(samples, level) {
    const seconds = samples.byteLength / 2 / this.sampleRate;
    this.seconds += seconds;
    this.silence = level < SILENT ? this.silence + seconds : 0;
    this.connection.send(samples);
    this.on.sound(level);
    if (!this.isStopping) this.warn();
  }

  warn() {
    this.on.warning("silence", this.silence > SILENT_SECONDS ? say("silence") : "");
    const { delay } = this.connection;
    const seconds = Math.round(delay);
    if (delay > TOO_SLOW) this.stop(say("tooSlow", { seconds }));
    else this.on.warning("slow", delay > SLOW ? say("slow", { seconds }) : "");
  }

  /** End the recording; its last text is still to come. `why`: words for the person if the person did not ask. */
  async stop(why = "") {
    if (this.isStopping) return;
    const closed = this.leave();
    this.on.stopping(why);
    await closed;
    this.connection.end();
  }

  /** End without the last text. */
  cancel() {
    this.connection.close();
    this.leave();
  }

  /** Close the microphone; its last packet gives no more warnings. */
  leave() {
    this.isStopping = true;
    for (const key of ["silence", "slow"]) this.on.warning(key, "");
    return this.microphone.close();
  }
}
