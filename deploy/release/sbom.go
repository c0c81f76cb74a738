package main

import (
	"bytes"
	"net/url"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// specVersion is the version of CycloneDX, older than the newest one: scanners lag behind.
const specVersion = cdx.SpecVersion1_6

// sbom returns a program's bill of materials. It has no serial number and no time, so that the same
// binary gives the same text.
func (p *program) sbom(version string) ([]byte, error) {
	root := "pkg:golang/" + p.path + "@" + version
	var components []cdx.Component
	var refs []string
	for _, m := range p.modules {
		purl := "pkg:golang/" + m.path + "@" + url.QueryEscape(strings.TrimPrefix(m.version, "go"))
		refs = append(refs, purl)
		components = append(components, cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version,
			PackageURL: purl, Licenses: licenseChoice(m.licenses),
		})
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: root, Type: cdx.ComponentTypeApplication, Name: p.name, Version: version,
		Licenses: licenseChoice([]string{"Apache-2.0"}),
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.sha256}},
	}}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: root, Dependencies: &refs}}
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).
		EncodeVersion(bom, specVersion)
	return out.Bytes(), err
}

// licenseChoice returns one licence, or the expression that requires all of them.
func licenseChoice(ids []string) *cdx.Licenses {
	if len(ids) == 1 {
		return &cdx.Licenses{{License: &cdx.License{ID: ids[0]}}}
	}
	return &cdx.Licenses{{Expression: strings.Join(ids, " AND ")}}
}
