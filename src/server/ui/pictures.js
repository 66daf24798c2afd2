// Pictures of the next message: chosen, pasted or dropped, made smaller if they are large, and shown as thumbnails.
import { $, announce, element, icon_button } from "./dom.js";

const kTypes = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const kMostSide = 1536;         // pixels; larger pictures are made smaller
const kMostBytes = 512 * 1024;  // of a file that is taken as it is: conversations are kept in the browser
const kQuality = 0.9;
const kMostPictures = 16;       // of a message

function data_url(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

// A file as a data URL: as it is, or drawn anew.
async function url_of(file) {
  const bitmap = await createImageBitmap(file);
  const side = Math.max(bitmap.width, bitmap.height), scale = Math.min(1, kMostSide / side);
  if (scale === 1 && file.size <= kMostBytes) return data_url(file);
  const canvas = element("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", kQuality);
}

export function thumbnail(url, n) {
  return element("img", { src: url, alt: `Picture ${n + 1}`, class: "thumbnail" });
}

// What the model is sent of a message with pictures.
export function picture_parts(images, text, type = "image_url") {
  const part = (url) => (type === "image_url" ? { type, image_url: { url } } : { type, image_url: url });
  const words = type === "image_url" ? "text" : "input_text";
  return [...images.map(part), ...(text === "" ? [] : [{ type: words, text }])];
}

export class Pictures {
  // onchange(): pictures came or went. onproblem(text): a file cannot be taken.
  constructor({ onchange, onproblem }) {
    this.urls = [];
    this.allowed = false;
    this.hooks = { onchange, onproblem };
    $("attach-button").addEventListener("click", () => $("picture-files").click());
    $("picture-files").addEventListener("change", () => {
      this.add($("picture-files").files);
      $("picture-files").value = "";
    });
    $("prompt").addEventListener("paste", (event) => this.take(event, event.clipboardData));
    for (const name of ["dragover", "drop"]) {
      $("main").addEventListener(name, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();  // or the browser would leave for the file
        $("composer").toggleAttribute("data-drop", name === "dragover" && this.allowed);
        if (name === "drop") this.take(event, event.dataTransfer);
      });
    }
    $("main").addEventListener("dragleave", () => $("composer").removeAttribute("data-drop"));
  }

  // Whether the model sees.
  allow(allowed) {
    this.allowed = allowed;
    $("attach-button").hidden = !allowed;
    if (!allowed && this.urls.length > 0) this.set([]);
  }

  take(event, data) {
    const files = [...(data?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    if (this.allowed) this.add(files);
    else this.hooks.onproblem("This model has no eyes: it reads text only.");
  }

  async add(files) {
    for (const file of files) {
      if (this.urls.length >= kMostPictures) return this.hooks.onproblem(`A message has at most ${kMostPictures} pictures.`);
      try {
        if (!kTypes.includes(file.type)) throw new TypeError("no picture");
        const url = await url_of(file);
        this.set([...this.urls, url]);
        announce("Picture added");
      } catch {
        this.hooks.onproblem(`${file.name || "This file"} is no picture that can be read (PNG, JPEG, WebP, GIF, BMP).`);
      }
    }
    $("prompt").focus();
  }

  set(urls) {
    this.urls = urls;
    $("pictures").replaceChildren(...urls.map((url, n) => element("li", {}, thumbnail(url, n),
      icon_button("close", `Remove picture ${n + 1}`, () => this.set(this.urls.filter((_, at) => at !== n))))));
    $("pictures").hidden = urls.length === 0;
    this.hooks.onchange();
  }

  // Gives the pictures to the message that is sent.
  give() {
    const urls = this.urls;
    this.set([]);
    return urls;
  }
}
