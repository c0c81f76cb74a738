package main

import (
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"jettison/internal/nearest"
)

// unknownCommand is what is wrong with the first word of a command line that is no command: also one with --help after it, which would
// else get the help of another one.
func unknownCommand(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	found, rest, _ := root.Find(args)
	if found != root && found.Name() != "help" {
		return nil
	}
	if topic, _, err := root.Find(rest); err == nil && topic != root {
		return nil
	}
	for _, word := range rest {
		if word == "--" || len(word) > 0 && word[0] == '-' {
			continue
		}
		return usageError{fmt.Errorf("unknown command %q%s: see jettison --help", word, meant(root, word))}
	}
	return nil
}

// meant is the command that a word is most like, as a question.
func meant(root *cobra.Command, word string) string {
	var names iter.Seq[string] = func(yield func(string) bool) {
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() && !yield(c.Name()) {
				return
			}
		}
	}
	return nearest.Question(word, names)
}
