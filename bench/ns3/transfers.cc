// SPDX-License-Identifier: Apache-2.0
//
// Short flows through one bottleneck, in ns-3: those of a `flows.csv` that `sidestep sim run` has written.
//
//   l1..lN ── L ── R ── r1..rN      1 ms and ten times the bottleneck's rate to each host
//
// Each line has when a transfer begins, from which host to which, and how many bytes. Prints how long each took: from the
// SYN until all was acknowledged, as ours counts.

#include "common.h"

#include <fstream>
#include <sstream>

using namespace sidestep;

namespace {

struct Transfer {
    double start;
    uint32_t from;
    uint32_t to;
    uint32_t bytes;
    double seconds = 0.0;
};

std::vector<Transfer> transfers;
uint32_t drops = 0;

void Dropped(Ptr<const Packet>)
{
    ++drops;
}

// By the names of the columns, and hosts by the numbers in their names.
std::vector<Transfer> Read(const std::string& name)
{
    std::ifstream file(name);
    std::string line;
    std::vector<std::string> columns;
    std::vector<Transfer> read;
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::vector<std::string> values;
        for (std::string value; std::getline(fields, value, ',');) {
            values.push_back(value);
        }
        if (columns.empty()) {
            columns = values;
            continue;
        }
        const auto of = [&](const char* column) {
            const auto at = std::find(columns.begin(), columns.end(), column) - columns.begin();
            return values.at(at);
        };
        const auto host = [&](const char* column) { return uint32_t(std::stoul(of(column).substr(1)) - 1); };
        // As many segments as ours, and as large a last one.
        const uint32_t bytes = std::lround(std::stod(of("bytes")) * PAYLOAD / OURS);
        read.push_back({std::stod(of("start_s")), host("from"), host("to"), bytes});
    }
    return read;
}

void Acked(Transfer* transfer, SequenceNumber32, SequenceNumber32 ack)
{
    // The SYN took a number.
    if (transfer->seconds == 0.0 && ack >= SequenceNumber32(transfer->bytes + 1)) {
        transfer->seconds = Simulator::Now().GetSeconds() - transfer->start;
    }
}

void Begin(const Dumbbell& net, Transfer* transfer)
{
    Ptr<Socket> socket = Socket::CreateSocket(net.left.Get(transfer->from), TcpSocketFactory::GetTypeId());
    socket->TraceConnectWithoutContext("HighestRxAck", MakeBoundCallback(&Acked, transfer));
    socket->Connect(InetSocketAddress(AddressOf(net.right.Get(transfer->to)), 7000));
    socket->Send(Create<Packet>(transfer->bytes));
    socket->Close();
}

}  // namespace

int main(int argc, char** argv)
{
    Dumbbell net;
    net.hosts = 4;
    std::string file;
    double seconds = 60.0;
    double minRto = 0.2;
    CommandLine command;
    command.AddValue("file", "the transfers", file);
    command.AddValue("hosts", "on each side", net.hosts);
    command.AddValue("seconds", "how long", seconds);
    command.AddValue("rate", "of the bottleneck", net.rate);
    command.AddValue("access", "rate of the hosts' links", net.accessRate);
    command.AddValue("delay", "of the bottleneck", net.delay);
    command.AddValue("queue", "of the bottleneck, in bytes", net.queueBytes);
    command.AddValue("rto", "least RTO, in seconds", minRto);
    command.Parse(argc, argv);
    SetTcp("TcpLinuxReno", false, Seconds(minRto));
    Build(net);
    for (uint32_t i = 0; i < net.hosts; ++i) {
        PacketSinkHelper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 7000)).Install(net.right.Get(i));
    }
    // Before a full device, without a queue of its own, it is traffic control that drops.
    Ptr<TrafficControlLayer> layer = net.bottleneck.Get(0)->GetNode()->GetObject<TrafficControlLayer>();
    layer->TraceConnectWithoutContext("TcDrop", MakeCallback(&Dropped));
    transfers = Read(file);
    for (Transfer& transfer : transfers) {
        Simulator::Schedule(Seconds(transfer.start), [&] { Begin(net, &transfer); });
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    std::printf("{\"drops\":%u,\"seconds\":[", drops);
    for (size_t i = 0; i < transfers.size(); ++i) {
        std::printf("%s%.6f", i > 0 ? "," : "", transfers[i].seconds);
    }
    std::printf("]}\n");
    Simulator::Destroy();
    return 0;
}
