package commandline

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"jettison/internal/base/output"
)

// versions are the versions that a program is made of.
type versions struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Kubernetes string `json:"kubernetes,omitempty"` // of the types and rules; empty: unknown
	Platform   string `json:"platform"`
}

// Version returns the command that prints a program's version.
func Version(program, version string, stdout io.Writer) *cobra.Command {
	var asked Output
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of the program, Go and Kubernetes",
		Long: `version prints the version of the program. With -o wide, json or yaml, it also prints the
versions of Go and of Kubernetes whose types and rules the program was built with.`,
		Example: "  " + program + " version\n  " + program + " version -o json", Args: NoArguments,
		RunE: func(*cobra.Command, []string) error {
			format, err := asked.Format()
			if err != nil {
				return err
			}
			info, _ := debug.ReadBuildInfo() // nil: built without modules
			return versionsOf(version, info).print(stdout, format)
		},
	}
	asked.Add(cmd.Flags())
	return cmd
}

// versionsOf returns the versions of a program with the given build information.
func versionsOf(version string, info *debug.BuildInfo) versions {
	v := versions{Version: version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	for _, module := range info.Deps {
		if minor, ok := strings.CutPrefix(module.Version, "v0."); ok && module.Path == "k8s.io/api" {
			v.Kubernetes = "v1." + minor // k8s.io/api v0.37.2 is of Kubernetes v1.37.2
		}
	}
	return v
}

func (v versions) print(to io.Writer, format output.Format) error {
	switch {
	case format.Data():
		return format.EncodeIndented(to, v)
	case format == output.AsWide:
		_, err := fmt.Fprintf(to, "%s %s, Kubernetes %s, %s\n", v.Version, v.Go,
			cmp.Or(v.Kubernetes, "unknown"), v.Platform)
		return err
	}
	_, err := fmt.Fprintln(to, v.Version)
	return err
}
