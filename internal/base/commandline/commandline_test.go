package commandline

import (
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// The error about a value names what the flag accepts, for each type of flag that has a parser.
func TestInvalidValueSaysWhatTheFlagAccepts(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--on=maybe", `--on "maybe": want true or false`},
		{"--version=maybe", `--version "maybe": want true or false`},
		{"--age=soon", `--age "soon": want a duration such as 1m30s`},
		{"--age=10", `--age "10": want a duration such as 1m30s`},
		{"--age=1d", `--age "1d": want a duration such as 1m30s`},
		{"--age=", `--age "": want a duration such as 1m30s`},
		{"--timeout=never", `--timeout "never": want a duration such as 1m30s`},
		{"-nmany", `--times "many": want a whole number`},
		{"--times=1.5", `--times "1.5": want a whole number`},
		{"--burst=99999999999", `--burst "99999999999": want a whole number of at most 32 bits`},
		{"--rate=fast", `--rate "fast": want a number`},
		{"--share=half", `--share "half": want a number`},
	} {
		root := &cobra.Command{Use: "program"}
		Root(root, "v1", io.Discard, io.Discard)
		f := root.Flags()
		f.Bool("on", false, "")
		f.Duration("age", 0, "")
		Timeout(f, new(time.Duration), time.Second, "")
		f.IntP("times", "n", 0, "")
		f.Int32("burst", 0, "")
		f.Float64("rate", 0, "")
		f.Float32("share", 0, "")
		err := Execute(t.Context(), root, []string{c.arg})
		if want := c.want + ": see program --help"; err == nil || err.Error() != want || ExitCode(err) != ExitUsage {
			t.Errorf("error about %s = %v with exit code %d, want %q and exit code %d", c.arg, err, ExitCode(err), want, ExitUsage)
		}
	}
}
