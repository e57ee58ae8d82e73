package action

import "regexp"

// Advice returns what a report advises, with the program's name as the user knows it where the advice is to call us.
func Advice(program, text string) string { return advised.ReplaceAllString(text, "${1}"+program+" ") }

// advised is a call of ours: all of the advice, what is after a colon, or between backticks.
var advised = regexp.MustCompile("(^|: |`)virtctl ")
