package widget

import "github.com/virtkit/virtkit/pkg/client/store"

// Marked returns the marked rows that are shown; without any, the row under the cursor.
func (t *Table[R]) Marked() []R {
	var out []R
	if len(t.marks) > 0 {
		for _, r := range t.rows {
			if t.marks[t.Key(r)] {
				out = append(out, r)
			}
		}
	}
	if current, ok := t.Current(); ok && len(out) == 0 {
		out = append(out, current)
	}
	return out
}

// Marks returns the number of rows that are marked, and how many of those the filter hides.
func (t *Table[R]) Marks() (marked, hidden int) {
	if len(t.marks) == 0 {
		return 0, 0
	}
	hidden = len(t.marks)
	for _, r := range t.rows {
		if t.marks[t.Key(r)] {
			hidden--
		}
	}
	return len(t.marks), hidden
}

// Mark marks the row under the cursor, or takes its mark away, and goes on to the next.
func (t *Table[R]) Mark() {
	current, ok := t.Current()
	if !ok {
		return
	}
	if t.marks == nil {
		t.marks = map[store.Key]bool{}
	}
	if key := t.Key(current); t.marks[key] {
		delete(t.marks, key)
	} else {
		t.marks[key] = true
	}
	t.Move(1)
}

// MarkAll marks all rows that are shown; when they all are, it takes their marks away.
func (t *Table[R]) MarkAll() {
	if t.marks == nil {
		t.marks = map[store.Key]bool{}
	}
	before := len(t.marks)
	for _, r := range t.rows {
		t.marks[t.Key(r)] = true
	}
	if len(t.marks) > before {
		return
	}
	for _, r := range t.rows {
		delete(t.marks, t.Key(r))
	}
}

// Unmark takes all marks away, those of rows that are hidden too.
func (t *Table[R]) Unmark() { t.marks = nil }
