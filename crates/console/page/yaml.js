// Objects as YAML, drawn with folds and colors.

import { h } from './dom.js';

const PLAIN = /^[A-Za-z0-9_./()<>@$^+=~][A-Za-z0-9_ ./()<>@$^+=~;,-]*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan|[-+]?[0-9][0-9_.eExXa-fA-FoO:+-]*)$/i;

function scalar(value) {
  if (value === null || value === undefined) return ['null', 'y-null'];
  if (typeof value === 'number' || typeof value === 'boolean') return [String(value), 'y-number'];
  const text = String(value);
  if (text !== '' && PLAIN.test(text) && !RESERVED.test(text) && !text.endsWith(' ') && !text.includes(' #') && !text.endsWith(':')) return [text, 'y-text'];
  return [JSON.stringify(text), 'y-text'];
}

const isEmpty = (value) => typeof value === 'object' && value !== null && Object.keys(value).length === 0;
const isTree = (value) => typeof value === 'object' && value !== null && !isEmpty(value);

/** The text of a document. */
export function toYaml(value, indent = '') {
  if (Array.isArray(value)) {
    if (!value.length) return indent + '[]\n';
    return value.map((item) => {
      if (!isTree(item)) return `${indent}- ${leaf(item)}\n`;
      const inner = toYaml(item, indent + '  ');
      return `${indent}- ${inner.slice(indent.length + 2)}`;
    }).join('');
  }
  if (isTree(value)) {
    return Object.entries(value).map(([name, item]) => {
      const head = `${indent}${scalar(name)[0]}:`;
      if (isTree(item)) return `${head}\n${toYaml(item, Array.isArray(item) ? indent : indent + '  ')}`;
      if (typeof item === 'string' && item.includes('\n')) return `${head} |${item.endsWith('\n') ? '' : '-'}\n${item.replace(/\n$/, '').split('\n').map((line) => `${indent}  ${line}`.trimEnd()).join('\n')}\n`;
      return `${head} ${leaf(item)}\n`;
    }).join('');
  }
  return indent + leaf(value) + '\n';
}

function leaf(value) {
  if (Array.isArray(value)) return '[]';
  if (isEmpty(value)) return '{}';
  return scalar(value)[0];
}

/** The document as elements: managed fields are folded. */
export function drawYaml(value) {
  const managed = value && value.metadata && value.metadata.managedFields;
  const shown = managed ? { ...value, metadata: { ...value.metadata, managedFields: undefined } } : value;
  if (managed) delete shown.metadata.managedFields;
  const parts = [h('pre', { class: 'yaml', tabindex: '0', 'aria-label': 'YAML' }, toYaml(shown).trimEnd().split('\n').map(drawLine))];
  if (managed) {
    parts.push(h('details', { class: 'fold' }, h('summary', null, `metadata.managedFields (${managed.length})`),
      h('pre', { class: 'yaml', tabindex: '0', 'aria-label': 'Managed fields' }, toYaml(managed).trimEnd().split('\n').map(drawLine))));
  }
  return parts;
}

function drawLine(line) {
  const match = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*"|[^\s:"][^:]*?)(:)( .*)?$/.exec(line);
  const out = match
    ? [match[1], h('span', { class: 'y-key' }, match[2]), ':', match[4] ? h('span', { class: tone(match[4].trim()) }, match[4]) : null]
    : [h('span', { class: tone(line.trim().replace(/^(- )+/, '')) }, line)];
  return [out, '\n'];
}

const tone = (text) => (/^(null|\{\}|\[\])$/.test(text) ? 'y-null' : /^(true|false|-?[0-9][0-9.]*)$/.test(text) ? 'y-number' : 'y-text');
