// lunr leaves out what has a word behind a dash, so the dashes of an option such as --config are no part of a query.
// The search index has each Chinese character as a word of its own. A query asks for sections with all characters of a word.
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...more) {
  if (typeof message.data === "string") {
    const ask = (_, word) => ` ${[...word].map((character) => `+${character}`).join(" ")} `;
    message = { ...message, data: message.data.replace(/(^|\s)--+(?=\w)/g, "$1").replace(/"?(\p{sc=Han}+)"?/gu, ask) };
  }
  return post.call(this, message, ...more);
};
