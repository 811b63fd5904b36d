// What the page's own script does: tell how long ago something was, and a few keys. Everything works without it.
"use strict";

const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function describeAge(time) {
  const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
  const [unit, length] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || UNITS[UNITS.length - 1];
  return words.format(Math.round(seconds / length), unit);
}

for (const time of document.querySelectorAll("time[datetime]")) {
  time.title = `${time.textContent} UTC`;
  time.textContent = describeAge(time);
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
    event.target.form.requestSubmit();
  } else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const field = document.querySelector("[data-key='/']");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});

// A form that was sent is not sent again by a second press.
document.addEventListener("submit", (event) => {
  if (event.target.method === "post") {
    for (const button of event.target.querySelectorAll("button")) button.disabled = true;
  }
});
