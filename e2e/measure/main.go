// Command measure prints what the layout of this repository costs its readers: arrows between
// rooms, journeys through files, copies of small things, sizes. It reads any commit of the
// repository, and never touches the checkout.
//
//	main.go      flags, and the table
//	tree.go      the Go files of a folder or of a commit
//	rooms.go     folders below internal, and their imports
//	size.go      lines of files and functions
//	types.go     fields and methods of types
//	copies.go    what is written several times
//	journey.go   files that a reader enters
//	wordrows.go  words: comments, docs, failures of tests; package words finds them
//	journeys/    the journeys, a folder each; each file in it is the journey in the names of one layout
package main

import (
	"embed"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

//go:embed journeys
var journeys embed.FS

func main() {
	commit := flag.String("commit", "", "commit to measure; empty: the working tree")
	places := flag.Bool("places", false, "list the places of what is counted")
	folder := flag.String("words", "", "print only the findings about words in a folder or file of the working tree")
	flag.Parse()
	if *folder != "" {
		if err := printFindings(os.Stdout, *folder); err != nil {
			fmt.Fprintln(os.Stderr, "measure:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Stdout, *commit, *places); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, commit string, places bool) error {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	dir := strings.TrimSpace(string(top))
	if commit != "" {
		extracted, err := extract(dir, commit)
		if err != nil {
			return fmt.Errorf("read commit %s: %w", commit, err)
		}
		defer os.RemoveAll(extracted)
		dir = extracted
	}
	t, err := readTree(dir)
	if err != nil {
		return err
	}
	all, err := fs.Sub(journeys, "journeys")
	if err != nil {
		return err
	}
	return printTable(out, t, all, places)
}

// row is one figure. Its places are printed with -places.
type row struct {
	what, figure string
	places       []string
}

// na is a figure that a tree does not have.
const na = "n/a"

func count(what string, places []string) row {
	return row{what, fmt.Sprint(len(places)), places}
}

// printTable prints all figures of a tree as a Markdown table.
func printTable(out io.Writer, t *tree, journeys fs.FS, places bool) error {
	trips, err := journeyRows(t, journeys)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("| what | figure |\n|---|---|\n")
	for _, rows := range [][]row{roomRows(t), shareRows(t), trips, typeRows(t), copyRows(t), sizeRows(t), wordRows(t.words)} {
		for _, r := range rows {
			fmt.Fprintf(&text, "| %s | %s |\n", r.what, r.figure)
			for _, p := range r.places {
				if places {
					fmt.Fprintf(&text, "| | %s |\n", p)
				}
			}
		}
	}
	_, err = io.WriteString(out, text.String())
	return err
}
