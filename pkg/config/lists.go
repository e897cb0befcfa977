package config

import (
	"regexp"
	"slices"
	"strings"
)

// list accepts a list. split returns the items of a text, and one parses an item.
func list[T any](want string, split func(text string) []string, one func(item string) (T, bool)) kind[[]T] {
	parse := func(text string) (values []T, wrong string, ok bool) {
		for _, item := range split(text) {
			value, ok := one(item)
			if !ok {
				return nil, item, false
			}
			values = append(values, value)
		}
		return values, "", true
	}
	return kind[[]T]{
		want: want,
		parse: func(text string) ([]T, bool) {
			values, _, ok := parse(text)
			return values, ok
		},
		wrong: func(text string) string {
			_, item, _ := parse(text)
			return item
		},
	}
}

// items returns the items of a list that are separated by commas, without the blanks around them.
func items(text string) []string {
	list := strings.Split(text, ",")
	for i, item := range list {
		list[i] = trimBlanks(item)
	}
	return list
}

// erlangList returns the submatches of each item of a list of Erlang terms, which may end with a full stop. item matches
// an item at the beginning of a text, with the blanks around it.
func erlangList(text string, item *regexp.Regexp) (found [][]string, ok bool) {
	rest, begun := strings.CutPrefix(strings.TrimSpace(strings.TrimSuffix(text, ".")), "[")
	rest, ended := strings.CutSuffix(rest, "]")
	for more := strings.TrimSpace(rest) != ""; more; {
		submatches := item.FindStringSubmatch(rest)
		if submatches == nil {
			return nil, false
		}
		found = append(found, submatches)
		rest = rest[len(submatches[0]):]
		if rest, more = strings.CutPrefix(rest, ","); !more && rest != "" {
			return nil, false
		}
	}
	return found, begun && ended
}

// claimPath accepts the names of nested claims.
func claimPath() kind[[]string] {
	return kind[[]string]{
		want: `names with a dot between them, such as my\.app.roles, where \. is a dot of a name`,
		parse: func(text string) (names []string, ok bool) {
			names = strings.Split(text, ".")
			for i := 0; i < len(names)-1; {
				if start, escaped := strings.CutSuffix(names[i], `\`); escaped {
					names = slices.Replace(names, i, i+2, start+"."+names[i+1])
				} else {
					i++
				}
			}
			return names, !slices.Contains(names, "")
		},
	}
}

// entries returns the items that are not empty.
func entries(text string) []string {
	return slices.DeleteFunc(items(text), func(item string) bool { return item == "" })
}
