// Command mkchart packs the chart as "helm package" does, with the project's licence: mkchart
// -version VERSION -time SECONDS -o FOLDER. The same input gives the same bytes. It runs in the
// folder of the chart's module.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

func main() {
	version := flag.String("version", "", "version of the chart and of the programs")
	seconds := flag.Int64("time", 0, "time of the files, in seconds since 1970")
	out := flag.String("o", "", "folder for the package; it is created")
	flag.Parse()
	if flag.NArg() > 0 || *version == "" || *out == "" {
		fail(errors.New("want -version VERSION -o FOLDER"))
	}
	if _, err := pack("jettison", "../../LICENSE", *version, time.Unix(*seconds, 0), *out); err != nil {
		fail(err)
	}
}

// pack packs a chart and a licence as a version, and returns the path of the package.
func pack(folder, license, version string, at time.Time, out string) (string, error) {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return "", fmt.Errorf("load the chart %s: %w", folder, err)
	}
	text, err := os.ReadFile(license)
	if err != nil {
		return "", err
	}
	c.Files = append(c.Files, &common.File{Name: "LICENSE", Data: text})
	c.Metadata.Version, c.Metadata.AppVersion = version, version
	c.ModTime, c.SchemaModTime = at, at
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		for _, f := range files {
			f.ModTime = at
		}
	}
	return util.Save(c, out)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mkchart:", err)
	os.Exit(1)
}
