/** Runs in the audio thread: makes packets of 16-bit samples of 100 ms, mono, and measures their level. */

const SECONDS = 0.1;

class Packets extends AudioWorkletProcessor {
  constructor() {
    super();
    this.size = Math.round(sampleRate * SECONDS);
    this.begin();
    this.port.onmessage = () => {
      this.send();
      this.port.postMessage(null); // everything was sent
    };
  }

  begin() {
    this.samples = new Int16Array(this.size);
    this.count = 0;
    this.energy = 0;
  }

  /** Post the samples so far and their level in dB of full scale. */
  send() {
    if (this.count === 0) return;
    const level = 10 * Math.log10(this.energy / this.count + 1e-10);
    const samples = this.samples.slice(0, this.count).buffer;
    this.port.postMessage({ samples, level }, [samples]);
    this.begin();
  }

  process([channels]) {
    const length = channels.length ? channels[0].length : 0;
    for (let place = 0; place < length; place++) {
      let sum = 0;
      for (const channel of channels) sum += channel[place];
      const sample = Math.max(-1, Math.min(1, sum / channels.length));
      this.energy += sample * sample;
      this.samples[this.count++] = Math.round(sample * 32767);
      if (this.count === this.size) this.send();
    }
    return true;
  }
}

registerProcessor("packets", Packets);
