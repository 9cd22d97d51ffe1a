const list = document.getElementById("list");
const all = await (await fetch("/v1", { credentials: "omit" })).json();
list.replaceChildren(...all.map((one) => {
  const line = document.createElement("p"), link = document.createElement("a"), about = document.createElement("span");
  link.href = "/" + one.name;
  link.textContent = one.title || one.name;
  about.className = "quiet";
  about.textContent = ` version ${one.version}: ${one.asks}; epsilon ${one.epsilon} per person`;
  line.append(link, about);
  if (one.suspicious) line.append(Object.assign(document.createElement("strong"), {
    className: "marked", textContent: " The estimate is suspicious: do not rely on it.",
  }));
  return line;
}));
