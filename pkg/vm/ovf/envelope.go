package ovf

// The XML of a descriptor. The order of an item's elements is the one of CIM's schema, which some readers insist on.
// Prefixes are part of the names here.

const (
	nsOVF  = "http://schemas.dmtf.org/ovf/envelope/1"
	nsRASD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
	nsVSSD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData"
	nsVMW  = "http://www.vmware.com/schema/ovf"
	// hardwareFamily is VMware's of ESXi 6.5, the first with Secure Boot.
	hardwareFamily = "vmx-13"
)

// The types of resources, as CIM_ResourceAllocationSettingData numbers them.
const (
	typeCPU, typeMemory, typeIDE, typeNIC, typeCD, typeDisk, typeSATA = "3", "4", "5", "10", "15", "17", "20"
)

type envelope struct {
	XMLName  struct{}       `xml:"Envelope"`
	XMLNS    string         `xml:"xmlns,attr"`
	OVF      string         `xml:"xmlns:ovf,attr"`
	RASD     string         `xml:"xmlns:rasd,attr"`
	VSSD     string         `xml:"xmlns:vssd,attr"`
	VMW      string         `xml:"xmlns:vmw,attr"`
	Virtkit  string         `xml:"xmlns:virtkit,attr"`
	Lang     string         `xml:"xml:lang,attr"`
	Files    references     `xml:"References"`
	Disks    diskSection    `xml:"DiskSection"`
	Networks networkSection `xml:"NetworkSection"`
	System   system         `xml:"VirtualSystem"`
}

type references struct {
	Files []file `xml:"File"`
}

type file struct {
	Href string `xml:"ovf:href,attr"`
	ID   string `xml:"ovf:id,attr"`
	Size int64  `xml:"ovf:size,attr"`
}

type diskSection struct {
	Info  string
	Disks []diskEntry `xml:"Disk"`
}

type diskEntry struct {
	Capacity int64  `xml:"ovf:capacity,attr"`
	Units    string `xml:"ovf:capacityAllocationUnits,attr"`
	ID       string `xml:"ovf:diskId,attr"`
	File     string `xml:"ovf:fileRef,attr"`
	Format   string `xml:"ovf:format,attr"`
}

type networkSection struct {
	Info     string
	Networks []network `xml:"Network"`
}

type network struct {
	Name        string `xml:"ovf:name,attr"`
	Description string
}

type system struct {
	ID       string `xml:"ovf:id,attr"`
	Info     string
	Name     string
	OS       operatingSystem `xml:"OperatingSystemSection"`
	Hardware hardware        `xml:"VirtualHardwareSection"`
}

type operatingSystem struct {
	ID          int    `xml:"ovf:id,attr"`
	VMware      string `xml:"vmw:osType,attr,omitempty"`
	Info        string
	Description string
}

type hardware struct {
	Info    string
	System  systemItem
	Items   []item         `xml:"Item"`
	Configs []vmwareConfig `xml:"vmw:Config"`
}

type systemItem struct {
	ElementName string `xml:"vssd:ElementName"`
	InstanceID  int    `xml:"vssd:InstanceID"`
	Identifier  string `xml:"vssd:VirtualSystemIdentifier"`
	Type        string `xml:"vssd:VirtualSystemType"`
}

type item struct {
	Address             string  `xml:"rasd:Address,omitempty"`
	AddressOnParent     string  `xml:"rasd:AddressOnParent,omitempty"`
	AllocationUnits     string  `xml:"rasd:AllocationUnits,omitempty"`
	AutomaticAllocation string  `xml:"rasd:AutomaticAllocation,omitempty"`
	Caption             string  `xml:"rasd:Caption"`
	Connection          string  `xml:"rasd:Connection,omitempty"`
	Description         string  `xml:"rasd:Description"`
	ElementName         string  `xml:"rasd:ElementName"`
	HostResource        string  `xml:"rasd:HostResource,omitempty"`
	InstanceID          int     `xml:"rasd:InstanceID"`
	Parent              string  `xml:"rasd:Parent,omitempty"`
	SubType             string  `xml:"rasd:ResourceSubType,omitempty"`
	Type                string  `xml:"rasd:ResourceType"`
	Quantity            int64   `xml:"rasd:VirtualQuantity,omitempty"`
	CoresPerSocket      *vendor `xml:"vmw:CoresPerSocket"`
	Bus                 *vendor `xml:"virtkit:DiskBus"`
	Model               *vendor `xml:"virtkit:InterfaceModel"`
}

// vendor is an element that others may pass over.
type vendor struct {
	Required bool   `xml:"ovf:required,attr"`
	Text     string `xml:",chardata"`
}

type vmwareConfig struct {
	Required bool   `xml:"ovf:required,attr"`
	Key      string `xml:"vmw:key,attr"`
	Value    string `xml:"vmw:value,attr"`
}
