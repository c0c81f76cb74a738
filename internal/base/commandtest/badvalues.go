package commandtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/filetest"
)

// Program describes a program to BadValues.
type Program struct {
	Root    func() *cobra.Command // used for its commands and flags only
	Execute func(ctx context.Context, args []string, stdout, stderr io.Writer) int
	// Files are the contents of files by their names in the directory of the cases. DIR stands for
	// that directory.
	Files map[string]string
	// Valid has values by the name of a flag, and by a placeholder of a command's usage such as FILE.
	// A case passes those that its command has, so that it reaches nothing of this machine. DIR stands
	// for the directory of the cases.
	Valid map[string]string
	// Serving lists the commands that run until they are interrupted.
	Serving []string
	// AnyText has the flags that accept any text, as "COMMAND --FLAG", with the reason.
	AnyText map[string]string
	// Advice is in each error about a missing permission; empty: no advice.
	Advice string
}

// Limits of one command line.
const (
	servingTime = 500 * time.Millisecond // until a serving command is interrupted
	hangTime    = 2 * time.Minute
	maxMemory   = 512 << 20 // bytes
)

// result is the end of one command line.
type result struct {
	Args           []string
	Value          string // the bad value
	Name           string // flag or placeholder
	Argument       bool   // the value is an argument, not of a flag
	Short          string // letter of the flag
	Default        string // of the flag
	Serving        bool
	Code           int
	Stdout, Stderr string
	Panic          string
}

// BadValues runs every command of a program with bad values: each flag and each argument with an
// empty text, a directory, an endless file, and a file without permission. Each command line must
// end soon, without a panic, and with a reason that names the value. Each command runs in a process
// of its own, as a user without privileges.
func BadValues(t *testing.T, p Program) {
	if command, child := os.LookupEnv("COMMANDTEST_COMMAND"); child {
		if err := p.runCases(command, os.Getenv("HOME"), os.NewFile(3, "results")); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // not through TestMain, which may need privileges again
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // readable for the user of the processes
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(folder(dir), 0o755),
		os.WriteFile(unreadable(dir), []byte("text"), 0o000)); err != nil {
		t.Fatal(err)
	}
	for name, text := range p.Files {
		filetest.Write(t, filepath.Join(dir, name), strings.ReplaceAll(text, "DIR", dir))
	}
	for command := range commands(p.Root()) {
		t.Run(command, func(t *testing.T) {
			var valid result
			for i, r := range runProcess(t, dir, command) {
				if i == 0 {
					valid = r
				}
				for _, fault := range p.faults(command, &r, &valid) {
					t.Errorf("command line %q: %s\nexit code = %d, stderr = %q", r.Args, fault, r.Code, r.Stderr)
				}
			}
		})
	}
}

func folder(dir string) string     { return filepath.Join(dir, "folder") }
func unreadable(dir string) string { return filepath.Join(dir, "unreadable") }

// commands returns the paths of a root command and all commands below it, without the root's name.
func commands(root *cobra.Command) map[string]*cobra.Command {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	out := map[string]*cobra.Command{}
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		path := strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), root.DisplayName()))
		out[path] = c
		for _, below := range c.Commands() {
			add(below)
		}
	}
	add(root)
	return out
}

// runProcess runs the cases of a command in a process and returns their results.
func runProcess(t *testing.T, dir, command string) (out []result) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	name, _, _ := strings.Cut(t.Name(), "/")
	var log bytes.Buffer
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	child.Dir, child.Stdout, child.Stderr, child.ExtraFiles = dir, &log, &log, []*os.File{w}
	child.Env = []string{"COMMANDTEST_COMMAND=" + command, "HOME=" + dir, "PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + dir}
	err = child.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	results := json.NewDecoder(r)
	var last result
	for {
		var next result
		if err := results.Decode(&next); err != nil {
			break
		}
		if last = next; next.Code >= 0 {
			out = append(out, next)
		}
	}
	if err := child.Wait(); err != nil {
		t.Errorf("command line %q ended its process: %v, want an error on stderr\n%.2000s", last.Args, err, log.String())
	}
	return out
}

// runCases runs the cases of a command. It writes each case to results before its start, with code
// -1, and after its end.
func (p *Program) runCases(command, dir string, results io.Writer) error {
	if os.Getuid() == 0 {
		const unprivileged = 65534
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(unprivileged),
			syscall.Setuid(unprivileged)); err != nil {
			return fmt.Errorf("drop privileges: %w", err)
		}
	}
	go watchMemory()
	to := json.NewEncoder(results)
	for _, r := range p.cases(command, dir) {
		r.Code = -1
		if err := to.Encode(r); err != nil {
			return err
		}
		p.run(&r)
		if err := to.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// watchMemory ends the process when it has allocated too much.
func watchMemory() {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	for ; ; time.Sleep(10 * time.Millisecond) {
		if metrics.Read(sample); sample[0].Value.Uint64() > maxMemory {
			fmt.Fprintf(os.Stderr, "the command allocated more than %d bytes\n", maxMemory)
			os.Exit(1)
		}
	}
}

// value returns a valid value.
func (p *Program) value(name, dir string) string {
	return strings.ReplaceAll(p.Valid[name], "DIR", dir)
}

// cases returns the command lines of a command: the first is valid.
func (p *Program) cases(command, dir string) (out []result) {
	c := commands(p.Root())[command]
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	base := func(without string) []string {
		args := strings.Fields(command)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if _, ok := p.Valid[f.Name]; ok && f.Name != without {
				args = append(args, "--"+f.Name+"="+p.value(f.Name, dir))
			}
		})
		return args
	}
	_, usage, _ := strings.Cut(c.Use, " ")
	placeholder, _, _ := strings.Cut(strings.Trim(usage, "[]"), "|")
	serving := slices.Contains(p.Serving, command)
	valid := result{Serving: serving, Args: base("")}
	if placeholder != "" {
		valid.Args = append(valid.Args, p.value(placeholder, dir))
	}
	out = append(out, valid)
	for _, value := range []string{"", folder(dir), "/dev/zero", unreadable(dir)} {
		r := result{Value: value, Serving: serving}
		r.Name, r.Argument, r.Args = placeholder, true, append(base(""), value)
		out = append(out, r)
		add := func(f *pflag.Flag) {
			r.Name, r.Argument, r.Short, r.Default = f.Name, false, f.Shorthand, f.DefValue
			r.Args = append(base(f.Name), "--"+f.Name+"="+value)
			if usage != "" && !strings.HasPrefix(usage, "[") {
				r.Args = append(r.Args, p.value(placeholder, dir))
			}
			out = append(out, r)
		}
		c.Flags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
	}
	return out
}

// run runs one command line.
func (p *Program) run(r *result) {
	limit := hangTime
	if r.Serving {
		limit = servingTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	hang := time.AfterFunc(hangTime+limit, func() { panic(fmt.Sprintf("%q hangs", r.Args)) })
	defer hang.Stop()
	defer func() {
		if e := recover(); e != nil {
			r.Code, r.Panic = 0, fmt.Sprintf("%v\n%s", e, debug.Stack())
		}
	}()
	var out, errs bytes.Buffer
	r.Code = p.Execute(ctx, r.Args, &out, &errs)
	r.Stdout, r.Stderr = out.String(), errs.String()
	if !r.Serving && ctx.Err() != nil {
		r.Panic = "did not end"
	}
}

// parserError matches the error of a parser of Go, which does not say what the program wants.
var parserError = regexp.MustCompile(`strconv\.|\btime: |\bparsing |\bparse "`)

// faults returns what is wrong with the end of a command line.
func (p *Program) faults(command string, r, valid *result) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	_, anyText := p.AnyText[command+" --"+r.Name]
	text := strings.Join(strings.Fields(r.Stdout+" "+r.Stderr), " ")
	unused := r.Stdout == valid.Stdout && r.Stderr == valid.Stderr
	named := strings.Contains(text, "--"+r.Name) || strings.Contains(text, strings.ReplaceAll(r.Name, "-", " ")) ||
		r.Short != "" && strings.Contains(text, " -"+r.Short) || r.Value != "" && strings.Contains(text, r.Value)
	switch {
	case r.Panic != "":
		add("%s", r.Panic)
	case strings.Contains(r.Stderr, "goroutine "):
		add("stack trace on stderr")
	case r.Code != 0 && text == "":
		add("no reason")
	case parserError.MatchString(text):
		add("error has %q of a parser, want what the flag accepts", parserError.FindString(text))
	case strings.Contains(text, "context ") || strings.Contains(text, "open : ") || strings.Contains(text, "read : "):
		add("error does not name the cause")
	case r.Argument && r.Value == "" && r.Code != 2:
		add("want exit code 2 for an empty argument")
	case r.Argument && r.Value == "":
	case r.Value == "" && r.Default == "": // not set
	case r.Name == "": // the valid one
	case r.Code == 0 && !anyText && !named:
		add("accepted, and not listed in AnyText")
	case r.Code != 0 && !anyText && !named && !unused:
		add("error does not name the value or the flag")
	case strings.Contains(text, "permission denied") && !strings.Contains(text, p.Advice):
		add("error about a permission does not say %q", p.Advice)
	}
	return out
}
