// Correlations between techniques and between models, Table 2, and the claims of the paper.

function agreementFigures(grid) {
  const kinds = [['techniques', 'Do techniques agree?', grid.techniques], ['models', 'Do models agree?', grid.models]];
  return kinds.filter(([, , names]) => names.length > 1).map(([kind, title, names]) =>
    figure(title,
      'Correlation of centres of gravity and of layer weights: Spearman’s ρ below the diagonal, Pearson’s r above. '
      + 'Fewer than four points have none.',
      h('div', { class: 'two' }, ['m_cog', 'layer_weights'].map((quantity) => h('div', { class: 'panel' },
        h('h4', {}, capital(grid.in_print[quantity])),
        matrix(names, grid.agreement.filter((row) => row.kind === kind && row.quantity === quantity), `${title} By ${grid.in_print[quantity]}`))))));
}

function matrix(names, rows, caption) {
  const found = (one, other) => rows.find((row) =>
    (row.one === one && row.other === other) || (row.one === other && row.other === one));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { class: 'matrix' }, h('caption', { class: 'unseen' }, caption),
      h('thead', {}, h('tr', {}, h('td', {}), names.map((name) => h('th', { scope: 'col' }, h('bdi', {}, name))))),
      h('tbody', {}, names.map((name, i) => h('tr', {}, h('th', { scope: 'row' }, h('bdi', {}, name)), names.map((other, k) => {
        if (i === k) return h('td', { class: 'diagonal' }, '');
        const kind = k < i ? 'spearman' : 'pearson';
        return correlationCell(found(name, other), kind, k < i ? 'ρ' : 'r', `${name} and ${other}`);
      }))))));
}

function correlationCell(row, kind, symbol, pair) {
  const value = row ? row[kind] : null;
  const cell = h('td', { tabindex: '0' }, decimal(value));
  if (known(value)) {
    const { fill: shade, ink } = heatOfCorrelation(value);
    cell.style.backgroundColor = shade;
    cell.style.color = ink;
  }
  const interval = row && known(row[`${kind}_low`]) ? `[${decimal(row[`${kind}_low`])}, ${decimal(row[`${kind}_high`])}]` : '–';
  return explain(cell, () => [capital(pair), [[symbol, decimal(value)], ['95% interval', interval], ['points', String(row ? row.n : 0)]]]);
}

function tableTwoFigure(grid) {
  const rows = grid.agreement.filter((row) => row.kind === 'generalisation');
  if (!rows.length) return null;
  const scopes = [...new Set(rows.map((row) => row.scope))];
  const pairs = [...new Map(rows.map((row) => [`${row.one} ${row.other}`, row])).values()];
  return figure('Is it deeper where it generalises better?',
    'Table 2 of the paper: Spearman’s ρ between how deep memorisation is and how well the task is generalised.',
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table 2' }, h('table', { class: 'plain' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'depth of'), h('th', { scope: 'col' }, 'against'), scopes.map((scope) => h('th', { scope: 'col', class: 'number' }, scope)))),
      h('tbody', {}, pairs.map((pair) => h('tr', {}, h('th', { scope: 'row' }, grid.in_print[pair.one]), h('td', {}, grid.in_print[pair.other]),
        scopes.map((scope) => {
          const row = rows.find((one) => one.one === pair.one && one.other === pair.other && one.scope === scope);
          const interval = row && known(row.spearman_low) ? ` [${decimal(row.spearman_low)}, ${decimal(row.spearman_high)}]` : '';
          return h('td', { class: 'number' }, row ? decimal(row.spearman) : '–', h('span', { class: 'quiet' }, interval, row ? ` n ${row.n}` : ''));
        })))))));
}

const VERDICT_SIGNS = { holds: ['✓', 'good'], 'does not hold': ['✗', 'bad'], 'not enough data': ['·', 'open'] };

function claimsFigure(grid) {
  if (!grid.claims.length) return null;
  const open = grid.claims.filter((claim) => claim.verdict === 'not enough data');
  const decided = grid.claims.filter((claim) => !open.includes(claim));
  return figure('The paper’s claims, checked', `${grid.claims_line} Every claim has a rule, which stands below it.`,
    decided.length > 0 && claimsTable(decided, 'Claims'),
    open.length > 0 && h('details', { class: 'claims-open' },
      h('summary', {}, `${plural(open.length, 'claim')} without enough data`), claimsTable(open, 'Claims without enough data')));
}

function claimsTable(claims, name) {
  const sections = [...new Set(claims.map((claim) => claim.section))];
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': name }, h('table', { class: 'plain claims' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'verdict'), h('th', { scope: 'col' }, 'claim'),
        h('th', { scope: 'col' }, 'paper'), h('th', { scope: 'col' }, 'here'), h('th', { scope: 'col', class: 'number' }, 'n'))),
      sections.map((part) => h('tbody', {}, h('tr', { class: 'group' }, h('th', { scope: 'rowgroup', colspan: 5 }, part)),
        claims.filter((claim) => claim.section === part).map((claim) => {
          const [sign, kind] = VERDICT_SIGNS[claim.verdict] || ['', 'open'];
          return h('tr', {}, h('td', { class: 'verdict' }, h('span', { class: `badge ${kind}` }, `${sign} ${claim.verdict}`)),
            h('td', { class: 'claim' }, claim.statement, h('span', { class: 'quiet block' }, claim.explanation)),
            h('td', { class: 'paper', 'data-label': 'Paper' }, claim.paper), h('td', { class: 'here', 'data-label': 'Here' }, claim.here), h('td', { class: 'number', 'data-label': 'n' }, claim.n || '–'));
        })))));
}
