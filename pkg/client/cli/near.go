package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Distance returns how many letters must be added, removed, replaced, or swapped with their neighbour to make b of a.
func Distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			least := min(rows[i][j]+cost, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				least = min(least, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = least
		}
	}
	return rows[len(a)][len(b)]
}

// near returns the commands of cmd that somebody who typed a word may have meant: the word is their beginning, or
// differs from their name by a letter, or by two of a long one.
func near(cmd *cobra.Command, word string) []string {
	word = strings.ToLower(word)
	var out []string
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		close := func(name string) bool {
			if len(name) <= 3 && len(word) == len(name) && !strings.Contains(name, word[:1]) {
				return false // get is not set
			}
			apart := min(2, max(1, (len(word)+1)/4))
			return len(word) > 1 && strings.HasPrefix(name, word) || Distance(word, name) <= apart
		}
		if slices.ContainsFunc(append([]string{sub.Name()}, sub.Aliases...), close) ||
			slices.ContainsFunc(sub.SuggestFor, func(s string) bool { return strings.EqualFold(s, word) }) {
			out = append(out, sub.Name())
		}
	}
	return out
}
