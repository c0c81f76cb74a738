// What writes the documents of a release, kept out of the agent's module.
module jettison/deploy/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/licensecheck v0.3.1
	golang.org/x/mod v0.41.0
)
