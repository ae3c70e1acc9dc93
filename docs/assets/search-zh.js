// The search index has each Chinese character as a word of its own. A query asks for sections with all characters of a word.
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...more) {
  if (typeof message.data === "string") {
    const ask = (_, word) => ` ${[...word].map((character) => `+${character}`).join(" ")} `;
    message = { ...message, data: message.data.replace(/"?(\p{sc=Han}+)"?/gu, ask) };
  }
  return post.call(this, message, ...more);
};
