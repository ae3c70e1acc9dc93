/** Times as the page shows them. */

import { say } from "./language.js";

/** 75.3 → "1:15"; 3675 → "1:01:15" */
export function shortClock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
  return parts.map((part, place) => (place ? String(part).padStart(2, "0") : part)).join(":");
}

/** 0.416 → "0.42 s"; 75.3 → "1:15.30" */
export function moment(seconds) {
  if (seconds < 60) return say("seconds", { seconds: seconds.toFixed(2) });
  const hundredths = Math.round(seconds * 100);
  return `${shortClock(hundredths / 100)}.${String(hundredths % 100).padStart(2, "0")}`;
}
