package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"jettison": main, "kubectl": fakeKubectl})
}

// The scripts run the program with valid and bad input, and check its output and exit codes.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// exit CODE COMMAND...: the command ends with that code and one line on stderr.
			"exit": func(ts *testscript.TestScript, _ bool, args []string) {
				var code string
				err := ts.Exec(args[1], args[2:]...)
				code = "0"
				if err != nil {
					code = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if code != args[0] {
					ts.Fatalf("%v ended with exit code %s, want %s", args[1:], code, args[0])
				}
				if text := ts.ReadFile("stderr"); code != "0" && (strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "jettison: ")) {
					ts.Fatalf("stderr is not one line with the prefix jettison: %q", text)
				}
			},
		},
	})
}
