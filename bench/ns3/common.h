// SPDX-License-Identifier: Apache-2.0
//
// What our ns-3 programs have in common: a dumbbell, and TCP with the settings of ours.
//
// As in ours a packet takes 1500 bytes on the wire, by a payload that makes up for smaller headers (see PAYLOAD). SACK is on,
// every second segment is acknowledged, an ACK waits for 40 ms at most, the RTO of the SYN is a second, the
// initial window is 10. The bottleneck's queue is the device's, in bytes and drop-tail; ns-3's traffic control would put a second
// queue before it and is removed. Only a bottleneck that marks has one.
//
// TcpLinuxReno is NewReno whose window grows by what was acknowledged (RFC 3465), as ours and Linux's; ns-3's TcpNewReno
// grows once an ACK, half as fast with delayed ACKs, loses less often and has a queue that is 13 % longer.
// ClassicRecovery, as PrrRecovery (ns-3's default) is another algorithm than RFC 6675.

#ifndef SIDESTEP_BENCH_NS3_COMMON_H
#define SIDESTEP_BENCH_NS3_COMMON_H

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <sys/resource.h>

#include <cstdio>
#include <string>
#include <vector>

namespace sidestep {

using namespace ns3;

// IPv4's header is 20 bytes shorter than IPv6's and the device adds 2 of PPP: with 18 bytes more of payload a packet takes
// as long on the wire as ours, 1500 bytes. Goodput is counted in segments of ours.
constexpr uint32_t PAYLOAD = 1428 + 18;
constexpr double OURS = 1428.0;

struct Dumbbell {
    uint32_t hosts = 32;
    std::string rate = "1Gbps";
    std::string accessRate = "1Gbps";
    std::string delay = "10ms";
    uint32_t queueBytes = 3000000;
    // Packets in the queue from which an arriving one is marked; zero: none is.
    uint32_t mark = 0;
    // Probability with which the bottleneck loses a packet, in each direction.
    double loss = 0.0;

    NodeContainer left;
    NodeContainer right;
    NetDeviceContainer bottleneck;
    Ptr<QueueDisc> marker;
};

inline uint64_t hops = 0;

inline void Received(Ptr<const Packet>)
{
    ++hops;
}

inline double CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
}

inline void SetTcp(const std::string& type, bool ecn, Time minRto)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::" + type)));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(60000 * PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(60000 * PAYLOAD));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(minRto));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(ecn ? "On" : "Off"));
}

inline NetDeviceContainer Link(Ptr<Node> a, Ptr<Node> b, const std::string& rate, const std::string& delay, uint32_t queueBytes,
                               Ipv4AddressHelper& addresses)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", StringValue(delay));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(std::to_string(queueBytes) + "B"));
    NetDeviceContainer devices = link.Install(a, b);
    // Traffic control comes with the address; it goes before there is any traffic.
    addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices);
    addresses.NewNetwork();
    for (uint32_t i = 0; i < 2; ++i) {
        devices.Get(i)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&Received));
    }
    return devices;
}

// RED whose two thresholds and average are the queue's length: it marks from a length on (RFC 8257, section 3.1). The device
// behind it keeps one packet besides the one that it sends, which counts as queue.
inline Ptr<QueueDisc> Mark(Ptr<NetDevice> device, uint32_t packets)
{
    DynamicCast<PointToPointNetDevice>(device)->GetQueue()->SetMaxSize(QueueSize("1p"));
    TrafficControlHelper red;
    red.SetRootQueueDisc("ns3::RedQueueDisc", "MinTh", DoubleValue(packets - 1), "MaxTh", DoubleValue(packets - 1), "QW",
                         DoubleValue(1.0), "Gentle", BooleanValue(false), "UseEcn", BooleanValue(true), "UseHardDrop",
                         BooleanValue(false), "MaxSize", StringValue("100000p"));
    return red.Install(device).Get(0);
}

inline void Build(Dumbbell& net)
{
    NodeContainer routers(2);
    net.left.Create(net.hosts);
    net.right.Create(net.hosts);
    InternetStackHelper stack;
    stack.Install(routers);
    stack.Install(net.left);
    stack.Install(net.right);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    net.bottleneck = Link(routers.Get(0), routers.Get(1), net.rate, net.delay, net.queueBytes, addresses);
    if (net.mark > 0) {
        net.marker = Mark(net.bottleneck.Get(0), net.mark);
    }
    for (uint32_t i = 0; net.loss > 0.0 && i < 2; ++i) {
        Ptr<RateErrorModel> loss = CreateObject<RateErrorModel>();
        loss->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        loss->SetRate(net.loss);
        net.bottleneck.Get(i)->SetAttribute("ReceiveErrorModel", PointerValue(loss));
    }
    for (uint32_t i = 0; i < net.hosts; ++i) {
        Link(net.left.Get(i), routers.Get(0), net.accessRate, "1ms", 100000000, addresses);
        Link(net.right.Get(i), routers.Get(1), net.accessRate, "1ms", 100000000, addresses);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
}

inline Ipv4Address AddressOf(Ptr<Node> host)
{
    return host->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
}

}  // namespace sidestep

#endif
