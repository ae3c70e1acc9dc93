/** Server-sent events out of an answer that grows. */

export class EventReader {
  /** @param {(event: object) => void} onEvent called with the JSON of each event */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.taken = 0; // characters of the answer
  }

  /** @param {string} answer all that has come so far; its last event may not be complete */
  read(answer) {
    for (let end = answer.indexOf("\n\n", this.taken); end >= 0; end = answer.indexOf("\n\n", this.taken)) {
      const line = answer.slice(this.taken, end);
      this.taken = end + 2;
      if (line.startsWith("data: ")) this.onEvent(JSON.parse(line.slice(6))); // others are comments
    }
  }
}
