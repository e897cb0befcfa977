package config

import "slices"

// mostNearest is the length in bytes of the longest name for which a near one is looked for. No name of settee is longer.
const mostNearest = 64

// nearestSection returns the section of settee that a mistyped section with these keys may mean, in the form that messages
// have. It returns "" if none is near, or if the near one has none of the keys.
func nearestSection(section string, keys []string) string {
	best := nearestTo(section)
	for _, own := range ownSections() {
		best.try(own)
	}
	if slices.ContainsFunc(keys, func(key string) bool { return known(name{best.found, key}) }) {
		return "[" + best.found + "]"
	}
	return ""
}

// nearest returns the name of the setting that a mistyped name may mean, in the form that messages have. It returns "" if no
// name is near, or if CouchDB has a setting of this name.
func nearest(n name) string {
	if present, ok := former[n.section]; ok { // CouchDB has older names of this section's keys only
		if there := (name{present.now, n.key}); known(there) {
			return there.String()
		}
		return ""
	}
	if slices.Contains(nearOnes, n) {
		return ""
	}
	best := nearestTo(n.key)
	elsewhere := "" // a section with a setting of this name
	for _, d := range table.settings {
		for _, s := range d.spellings {
			switch {
			case d.section == n.section:
				best.try(s.key)
			case s.key == n.key && elsewhere == "":
				elsewhere = d.section
			}
		}
	}
	switch {
	case best.found != "":
		return name{n.section, best.found}.String()
	case elsewhere != "" && slices.Contains(whollyKnown, n.section):
		return name{elsewhere, n.key}.String()
	}
	return ""
}

// near finds the candidate with the fewest edits between it and a text, without regard to case and to the kind of dash, if
// at most a quarter of the text would have to change.
type near struct {
	text   string
	found  string // "" if no candidate is near
	fewest int    // edits between text and found, or one more than are allowed
}

func nearestTo(text string) near {
	if len(text) > mostNearest {
		return near{}
	}
	return near{text: text, fewest: max(1, len(text)/4) + 1}
}

func (n *near) try(candidate string) {
	if len(candidate) > mostNearest || max(len(n.text)-len(candidate), len(candidate)-len(n.text)) >= n.fewest {
		return
	}
	if e := edits(n.text, candidate); e < n.fewest {
		n.found, n.fewest = candidate, e
	}
}

// edits returns how many bytes have to be inserted, deleted, replaced, or exchanged with their neighbour to make one text
// of another (the optimal string alignment distance). Both have at most mostNearest bytes.
func edits(a, b string) int {
	var rows [mostNearest + 1][mostNearest + 1]uint8 // rows[i][j] is for the first i and j bytes
	for i := range len(a) + 1 {
		rows[i][0] = uint8(i) //nolint:gosec // a has at most mostNearest bytes
	}
	for j := range len(b) + 1 {
		rows[0][j] = uint8(j)
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			x, y := folded(a[i-1]), folded(b[j-1])
			replaced := rows[i-1][j-1]
			if x != y {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && x == folded(b[j-2]) && folded(a[i-2]) == y {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1) //nolint:gosec // i and j are at least 2
			}
		}
	}
	return int(rows[len(a)][len(b)])
}

// folded returns a byte of a name in the form that is compared.
func folded(b byte) byte {
	switch {
	case b == '-':
		return '_'
	case 'A' <= b && b <= 'Z':
		return b + 'a' - 'A'
	}
	return b
}
